"""`run_static`: runs a static DataFrame through a pipeline in batches, with checkpoints in a scratch location.

Rows are split into batches by event time, so that time advances from batch to batch; without event time by key, so that
the rows of a key stay together.

Thread safety: the caller's thread; the progress bar has a thread of its own, which only reads Spark's status.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from emberstate._html import cell_text
from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.columns import INPUT_COLUMN, MICROS_COLUMN, ROW_COLUMNS, quoted
from emberstate.spark.driver.batch_runner import BatchRunner
from emberstate.spark.driver.delivery import check_sinks
from emberstate.spark.driver.source_position import BY_HAND, SourcePosition
from emberstate.spark.driver.sql_text import event_micros
from emberstate.spark.plan.pipeline import PipelinePlan, SavepointStart
from emberstate.spark.run_result import RunResult, discard
from emberstate.units import as_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from emberstate.runtime.rows.row import RowType

#: How long a slot of a run waits for the next batch.
_SLOT_IDLE: Final = timedelta(seconds=20)
#: Shows how many batches are done; the present one counts in part.
Update = Callable[[float], None]

#: How often the bar is drawn.
_SECONDS: Final = 0.25


def run_static(
    plan: PipelinePlan,
    df: DataFrame,
    row_types: tuple[RowType, dict[str, RowType]],
    *,
    batches: int,
    savepoint: str | None,
    save_as: str | None,
    close: bool,
) -> RunResult:
    """Run all rows; see `Pipeline.run`."""
    if type(batches) is not int or batches < 1:
        raise StateDeclarationError(f"batches: expected a positive number, got {batches!r}", option="batches")
    check_sinks(plan, df.sparkSession, row_types[0], None)
    scratch = plan.backend.scratch()
    start = None if savepoint is None else SavepointStart(savepoint, plan.backend, "elsewhere")
    # Its slots are of no use afterwards.
    idle = min(as_duration(plan.slot_idle, "slot_idle"), _SLOT_IDLE)
    # Rows that are all here are never idle.
    stages = tuple(stage.never_idle() for stage in plan.stages)
    try:
        runner = BatchRunner(
            dataclasses.replace(
                plan, stages=stages, savepoint=start, first_batch=0, slot_idle=idle, bounded=True,
                retained=max(plan.retained, batches),  # the output of all batches
            ),
            df.sparkSession,
            *row_types,
            scratch,
            0,
            _part(0, batches),
        )
        try:
            done = _run_all(plan, runner, df, batches, close)
            if save_as is not None:
                runner.savepoint(save_as, plan.backend.open_storage())
        finally:
            runner.close()
        progress, manifests = zip(*done, strict=True)
        return RunResult(progress, df.sparkSession, manifests, scratch)
    except BaseException:
        discard(scratch)
        raise


def _run_all(plan: PipelinePlan, runner: BatchRunner, df: DataFrame, batches: int, close: bool) -> list[Any]:
    """The progress of every batch, with its manifest."""
    parts = [df] if batches == 1 else list(_split(plan, df, batches))
    done = []
    with _bar(df.sparkSession, plan.name, len(parts)) as advance:
        for number, part in enumerate(parts):
            ended = close and number == len(parts) - 1
            progress = runner.run_batch(part, number, _part(number, len(parts)), ended)
            done.append((progress, runner.latest))
            advance()
    return done


def _part(number: int, parts: int) -> SourcePosition:
    return SourcePosition("run", BY_HAND, f"part {number} of {parts}")


def _split(plan: PipelinePlan, df: DataFrame, batches: int) -> Iterator[DataFrame]:
    """One DataFrame per batch; some may be empty."""
    from pyspark.sql import functions as F

    stage = plan.stages[0]
    tagged = plan.other_input is not None
    if stage.input.event_time is None or (tagged and stage.second is None):
        if tagged:
            what = "two inputs can be split only by the event time of both: use batches=1"
            raise StateDeclarationError(what, option="batches")
        keys = [F.col(quoted(name)) for name in stage.input.key_columns]
        part = F.pmod(F.xxhash64(*(key.cast("string") for key in keys), F.lit("run")), F.lit(batches))
        for number in range(batches):
            yield df.filter(part == number)
        return
    name = quoted(stage.input.event_time)
    time = event_micros(f"{ROW_COLUMNS[0]}.{name}" if tagged else name, stage.input.zone)
    if tagged:
        assert stage.second is not None and stage.second[1].event_time is not None
        other = event_micros(f"{ROW_COLUMNS[1]}.{quoted(stage.second[1].event_time)}", stage.second[1].zone)
        time = f"if({INPUT_COLUMN} = 0, {time}, {other})"
    timed = df.withColumn(MICROS_COLUMN, F.expr(time))
    shares = [number / batches for number in range(1, batches)]
    cuts: list[int] = [int(cut) for cut in timed.approxQuantile(MICROS_COLUMN, shares, 0.001)]
    bounds: list[int | None] = [None, *cuts, None]
    for low, high in zip(bounds, bounds[1:]):  # noqa: B905, RUF007
        chosen = F.lit(True) if low is None else F.col(MICROS_COLUMN) >= low
        if high is not None:
            chosen = chosen & (F.col(MICROS_COLUMN) < high)
        if low is None:
            chosen = chosen | F.col(MICROS_COLUMN).isNull()  # so that the slot rejects it
        yield timed.filter(chosen).drop(MICROS_COLUMN)


@contextlib.contextmanager
def _bar(spark: SparkSession, name: str, batches: int) -> Iterator[Any]:
    """A progress bar on the terminal or in the notebook: batches done, and Spark's share of the present one."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal and not console.is_jupyter:
        yield lambda: None
        return
    tracker = spark.sparkContext.statusTracker()
    done = 0
    stop = threading.Event()

    def advance() -> None:
        nonlocal done
        done += 1

    with (notebook_bar if console.is_jupyter else _terminal_bar)(name, batches) as update:

        def draw() -> None:
            while not stop.wait(_SECONDS):
                stages = [info for ident in tracker.getActiveStageIds() if (info := tracker.getStageInfo(ident))]
                tasks = sum(info.numTasks for info in stages)
                share = sum(info.numCompletedTasks for info in stages) / tasks if tasks else 0.0
                update(done + 0.9 * share)

        thread = threading.Thread(target=draw, daemon=True, name="emberstate-progress")
        thread.start()
        try:
            yield advance
        finally:
            stop.set()
            thread.join()
            update(done)


@contextlib.contextmanager
def _terminal_bar(name: str, batches: int) -> Iterator[Update]:
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(name, total=float(batches))
        yield lambda completed: bar.update(task, completed=completed)


@contextlib.contextmanager
def notebook_bar(name: str, batches: int) -> Iterator[Update]:
    """A bar below the cell, of HTML alone: rich's own needs ipywidgets, which many notebooks lack.

    It stays when the run is over, and says how far it came.
    """
    notebook = import_module("IPython.display")

    def picture(completed: float) -> Any:
        text = f"{cell_text(name)}: {int(completed)} of {batches} batches"
        return notebook.HTML(f'<progress value="{completed:.3f}" max="{batches}"></progress> {text}')

    last = 0.0
    shown = notebook.display(picture(0), display_id=True)

    def update(completed: float) -> None:
        nonlocal last
        if completed != last:
            last = completed
            shown.update(picture(completed))

    yield update
