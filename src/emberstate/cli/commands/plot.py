"""Plots: checkpoints over time, and the distribution of state over key groups.

SVG or PNG, by the name of the file. matplotlib, of the extra `plot`, is imported only here, and only to draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from emberstate.checkpoint.history.model import HistoryRecord
from emberstate.checkpoint.history.reader import HistoryReader
from emberstate.checkpoint.read.summaries import checkpoint_summaries
from emberstate.checkpoint.read.usage import StateUsage, state_usage
from emberstate.cli.console import Refused, print_json, print_line, progress
from emberstate.cli.selection import (
    checkpoint_options,
    chosen,
    json_option,
    location_argument,
    open_location,
    open_reader,
    operator_option,
    pick_operator,
    pick_states,
)

_FORMATS: Final = (".svg", ".png")

to_option = click.option(
    "--to", "target", required=True, type=click.Path(path_type=Path, dir_okay=False), help="FILE.svg or FILE.png."
)


@click.command("plot")
@location_argument
@to_option
@json_option
def plot_checkpoints(location: str, target: Path, as_json: bool) -> None:
    """Draw size, deltas and seconds of the batches in the history; without one, of the checkpoints that are left."""
    _check_target(target)
    storage = open_location(location)
    batches = [record for record in HistoryReader(storage).read().records if record.kind == "batch"]
    if batches:
        _draw(target, storage.describe(), lambda figure: _batches(figure, batches))
        _done(target, as_json, {"location": storage.describe(), "batches": len(batches)})
        return
    found = [item for item in checkpoint_summaries(storage) if item["problem"] is None]
    if not found:
        raise Refused(f"there is no checkpoint in {storage.describe()} that can be read: nothing to draw")
    _draw(target, storage.describe(), lambda figure: _checkpoints(figure, found))
    _done(target, as_json, {"location": storage.describe(), "checkpoints": len(found)})


def _batches(figure: Any, found: Sequence[HistoryRecord]) -> None:
    lagging = [record for record in found if record.lag is not None]
    sizes, times, *lags = figure.subplots(3 if lagging else 2, 1, sharex=True)
    numbers = [record.batch for record in found]
    unit, divisor = _unit(max(record.state_bytes for record in found))
    sizes.plot(numbers, [record.state_bytes / divisor for record in found], "k-", label="stored")
    sizes.plot(numbers, [record.delta_bytes / divisor for record in found], color="tab:blue", label="deltas")
    sizes.set_ylabel(unit)
    parts = [part for part in found[0].micros if part not in ("total", "background")]
    seconds = [[record.micros.get(part, 0) / 1e6 for record in found] for part in parts]
    times.stackplot(numbers, seconds, labels=parts)
    times.set_ylabel("seconds")
    for axes in lags:
        axes.plot([record.batch for record in lagging], [(record.lag or 0) / 1e6 for record in lagging], "k-")
        axes.set_ylabel("lag in seconds")
    for axes in (sizes, times):
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper left", fontsize="small")
    figure.axes[-1].set_xlabel("batch")
    figure.axes[-1].xaxis.get_major_locator().set_params(integer=True)


def _checkpoints(figure: Any, found: list[dict[str, Any]]) -> None:
    sizes, times = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    numbers = [item["number"] for item in found]
    unit, divisor = _unit(max(item["stored_bytes"] for item in found))
    delta, base = ([item[name] / divisor for item in found] for name in ("delta_bytes", "base_bytes"))
    sizes.plot(numbers, [item["stored_bytes"] / divisor for item in found], "k.-", label="state")
    sizes.bar(numbers, delta, color="tab:blue", label="written as deltas")
    sizes.bar(numbers, base, bottom=delta, color="tab:orange", label="written as bases")
    sizes.set_ylabel(unit)
    sizes.set_ylim(bottom=0)
    sizes.legend()
    timed = [item for item in found if item["seconds"] is not None]
    times.bar([item["number"] for item in timed], [item["seconds"] for item in timed], color="tab:green")
    for part, colour, label in (("sync", "tab:blue", "preparing"), ("async", "tab:orange", "base or merge, beside it")):
        known = [(item["number"], item[f"{part}_seconds"]) for item in found if item[f"{part}_seconds"] is not None]
        if known:
            times.plot(*zip(*known, strict=True), "o-", color=colour, markersize=3, label=label)
            times.legend()
    times.set_ylabel("seconds, begin to commit")
    times.set_ylim(bottom=0)
    times.set_xlabel("checkpoint")
    times.xaxis.get_major_locator().set_params(integer=True)


@click.command("heatmap")
@location_argument
@to_option
@checkpoint_options
@operator_option
@click.option("--state", "names", metavar="NAME", multiple=True, help="This state; may be given again. Default: all.")
@json_option
def plot_state(
    location: str,
    target: Path,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    names: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw the bytes of each state in each key group: skew shows as light and dark. Reads everything."""
    _check_target(target)
    with open_reader(location, checkpoint, savepoint) as reader:
        found = pick_operator(reader.manifest, operator)
        states = pick_states(reader, found.name, names)
        if not states:
            raise Refused(f"operator {found.name!r} has no state in {reader.manifest.describe()}")
        with progress("reading", len(states) * found.max_parallelism) as tick:
            usage = state_usage(reader, found.name, states, progress=tick)
        about = {**chosen(reader.manifest), "operator": found.name}
    title = f"operator {found.name} of job {about['job']}, {about['source']} {about['number']}"
    _draw(target, title, lambda figure: _heatmap(figure, usage, found.max_parallelism))
    _done(target, as_json, {**about, "states": states})


def _heatmap(figure: Any, usage: StateUsage, count: int) -> None:
    totals, cells = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2))
    amounts = [usage.of_group(group).bytes for group in range(count)]
    unit, divisor = _unit(max(amounts))
    totals.bar(range(count), [amount / divisor for amount in amounts], width=1.0)
    totals.set_ylabel(unit)
    groups = [usage.key_groups.get(group, {}) for group in range(count)]
    grid = [[states[name].bytes / divisor if name in states else 0.0 for states in groups] for name in usage.states]
    image = cells.imshow(grid, aspect="auto", interpolation="nearest", cmap="inferno")
    cells.set_yticks(range(len(usage.states)), list(usage.states))
    cells.set_xlabel("key group")
    figure.colorbar(image, ax=[totals, cells], label=f"{unit} of a state in a key group")


def _unit(largest: int) -> tuple[str, int]:
    """The unit for a number of bytes.

    >>> _unit(100), _unit(5_000_000)
    (('bytes', 1), ('MiB', 1048576))
    """
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if largest >= size:
            return unit, size
    return "bytes", 1


def _check_target(target: Path) -> None:
    if target.suffix.lower() not in _FORMATS:
        raise click.BadParameter(f"{str(target)!r} ends with neither .svg nor .png", param_hint="--to")


def _draw(target: Path, title: str, draw: Callable[[Any], None]) -> None:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise Refused(f"pictures need {error.name}: pip install 'emberstate[plot]'") from None
    # Without the time and with fixed ids, so that the same data gives the same file.
    with matplotlib.rc_context({"svg.hashsalt": "emberstate"}):
        figure = Figure(figsize=(10, 6), layout="constrained")
        figure.suptitle(title)
        draw(figure)
        metadata = {"Date": None} if target.suffix.lower() == ".svg" else {}
        try:
            figure.savefig(target, metadata=metadata)
        except OSError as error:
            raise Refused(f"writing {target} failed: {error}") from None


def _done(target: Path, as_json: bool, about: dict[str, Any]) -> None:
    if as_json:
        print_json({**about, "file": str(target)})
    else:
        print_line(str(target))
