"""`emberstate rescale --dry-run`: shows the slots of another parallelism.

Rescaling itself is a restart: stop the job, start it with another parallelism. Nothing is rewritten.
"""

from __future__ import annotations

from typing import Any

import click

from emberstate.checkpoint.manifest.chain import repartition
from emberstate.checkpoint.manifest.model import Operator
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.usage import Usage, state_usage
from emberstate.cli.console import print_json, print_line, print_table, progress, with_old_sizes
from emberstate.cli.selection import (
    checkpoint_options,
    chosen,
    json_option,
    location_argument,
    open_reader,
    operator_option,
    pick_operator,
)
from emberstate.keygroups import range_for_slot
from emberstate.units import size_text


@click.command()
@location_argument
@click.option("--parallelism", type=click.IntRange(min=1), required=True, metavar="N", help="The number of slots.")
@click.option("--dry-run", is_flag=True, help="Show it; there is nothing else to do offline.")
@checkpoint_options
@operator_option
@json_option
def rescale(
    location: str,
    parallelism: int,
    dry_run: bool,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    as_json: bool,
) -> None:
    """Show what each slot would hold, and read at its start, with another parallelism. Reads everything."""
    if not dry_run:
        raise click.UsageError(
            "rescaling is a restart: stop the job, and start it with another parallelism. To see what that means for "
            "its slots, give --dry-run"
        )
    with open_reader(location, checkpoint, savepoint) as reader:
        found = pick_operator(reader.manifest, operator)
        slots = _slots(reader, found, parallelism)
        result = {
            **chosen(reader.manifest),
            "operator": found.name,
            "max_parallelism": found.max_parallelism,
            "from": found.parallelism,
            "to": parallelism,
            "moved_key_groups": _moved(found, parallelism),
            "skew": _skew([slot["live_bytes"] for slot in slots]),
            "slots": slots,
        }
    if as_json:
        print_json(with_old_sizes(result))
        return
    print_line(
        f"operator {found.name!r}: from {found.parallelism} to {parallelism} slots; {result['moved_key_groups']} of "
        f"{found.max_parallelism} key groups change slots; the largest slot has {result['skew']} times the average"
    )
    columns = ("slot", "key groups", "entries", "live", "files", "to read")
    rows = (
        (s["slot"], s["key_groups"], s["entries"], size_text(s["live_bytes"]), s["files"], size_text(s["stored_bytes"]))
        for s in slots
    )
    print_table(columns, rows, right=("slot", "entries", "live", "files", "to read"))


def _slots(reader: CheckpointReader, operator: Operator, parallelism: int) -> list[dict[str, Any]]:
    ranges = [range_for_slot(operator.max_parallelism, parallelism, slot) for slot in range(parallelism)]
    states = [stored.address for stored in reader.states(operator.name)]
    with progress("reading", len(states) * operator.max_parallelism) as tick:
        usage = state_usage(reader, operator.name, states, progress=tick)
    chains = repartition(operator.slots, ranges, "")
    slots = []
    for number, (groups, chain) in enumerate(zip(ranges, chains, strict=True)):
        held = Usage()
        for group in groups:
            held.add(usage.of_group(group))
        slots.append(
            {
                "slot": number,
                "key_groups": f"{groups.start}-{groups.end}",
                "entries": held.entries,
                "live_bytes": held.bytes,
                "files": len(chain.files),
                # A slot reads its key groups of a base, and all of a delta.
                "stored_bytes": sum(file.place.size for file in chain.files),
            }
        )
    return slots


def _moved(operator: Operator, parallelism: int) -> int:
    before = {group: number for number, slot in enumerate(operator.slots) for group in slot.key_groups}
    after = {
        group: slot
        for slot in range(parallelism)
        for group in range_for_slot(operator.max_parallelism, parallelism, slot)
    }
    return sum(before[group] != after[group] for group in before)


def _skew(sizes: list[int]) -> float:
    """The largest divided by the average; 1.0 is even.

    >>> _skew([10, 10]), _skew([30, 0]), _skew([0])
    (1.0, 2.0, 1.0)
    """
    return round(max(sizes) * len(sizes) / sum(sizes), 2) if sum(sizes) else 1.0
