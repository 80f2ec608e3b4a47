"""`emberstate demo`: runs a streaming job on local Spark, kills one of its slots, changes the parallelism, and checks
the result.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.cli.console import Refused
from emberstate.cli.demo.job import PAYMENTS, REPORTS, Report, WatchedCards, generate, in_a_loop
from emberstate.cli.demo.picture import Moment, as_svg, as_text
from emberstate.spark import session
from emberstate.spark.pipeline import Pipeline
from emberstate.spark.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SEED: Final = 20261115
_SHOWN: Final = 12
_MARKER: Final = ".emberstate-demo"


@click.command()
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="Where to keep input, checkpoints and output; default: a new temporary directory. That of an earlier demo is "
    "overwritten.",
)
@click.option("--batches", default=16, show_default=True, type=click.IntRange(6, 1000), help="Batches of payments.")
@click.option("--rows", default=2000, show_default=True, type=click.IntRange(1, 1_000_000), help="Payments per batch.")
def demo(directory: Path | None, batches: int, rows: int) -> None:
    """Run a streaming job on local Spark, kill one of its slots, rescale it, and verify the result."""
    logging.getLogger("py4j").setLevel(logging.ERROR)
    console = Console(highlight=False)
    folder = _folder(directory)
    begun = time.monotonic()
    payments, end = generate(folder / "input", batches, rows, _SEED)
    console.print(f"{len(payments)} card payments of 400 cards, in {batches + 2} files, are in {folder / 'input'}.")
    spark = _spark(console)
    try:
        show = _Display(console)
        half = batches // 2
        with show:
            show.title = "2 slots; one will be killed half-way"
            _stream(spark, folder, show, parallelism=2, until=half, kill_at=half // 2)
            show.title = "the job was stopped, and resumes with 3 slots"
            _stream(spark, folder, show, parallelism=3, until=batches + 2, kill_at=None)
        delivered = sorted((tuple(row) for row in _output(spark, folder).collect()), key=repr)
    finally:
        spark.stop()
    _verdict(console, delivered, in_a_loop(sorted(payments, key=lambda payment: payment[3]), end), show)
    console.print(f"It took {time.monotonic() - begun:.0f} seconds.\n")
    moments = show.moments()
    (folder / "what-happened.svg").write_text(as_svg(moments), encoding="utf-8")
    console.print(as_text(moments), soft_wrap=True)
    console.print(f"\nThe same as a picture: {folder / 'what-happened.svg'}", soft_wrap=True)
    _what_next(console, folder)


def _folder(given: Path | None) -> Path:
    """An empty directory; deletes only what an earlier demo made."""
    if given is None:
        folder = Path(tempfile.mkdtemp(prefix="emberstate-demo-"))
    else:
        folder = given.absolute()
        if folder.exists() and any(folder.iterdir()) and not (folder / _MARKER).exists():
            raise Refused(f"{folder} is neither empty nor of an earlier demo: name another directory")
        shutil.rmtree(folder, ignore_errors=True)
    (folder / "input").mkdir(parents=True)
    (folder / _MARKER).touch()
    return folder


def _spark(console: Console) -> SparkSession:
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.log.level": "ERROR",
    }
    with console.status("Starting Spark …"), _quiet_start():
        spark = session("emberstate demo", master="local[2,4]", settings=settings)
        spark.sparkContext.setLogLevel("OFF")  # no stack trace of the killed slot
    return spark


@contextlib.contextmanager
def _quiet_start() -> Iterator[None]:
    """Keep the JVM's output during its start off the terminal, and show it if the start fails."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            os.dup2(kept, 2)
            said.seek(0)
            sys.stderr.write(said.read().decode(errors="replace"))
            raise
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _stream(
    spark: SparkSession, folder: Path, show: _Display, parallelism: int, until: int, kill_at: int | None
) -> None:
    """Run the stream to the end of batch `until` - 1."""

    def listen(progress: Progress) -> None:
        show.add(progress)
        if progress.batch == kill_at:
            show.note(progress.batch, f"killed the process of a slot, {_kill_a_slot()}")

    pipeline = (
        Pipeline("cards", FsStateBackend(folder / "state"), parallelism=parallelism)
        .key_by("card")
        .event_time("ts")
        .process("watched-cards", WatchedCards(), schema=REPORTS)
        .sink(lambda df, batch: df.write.mode("overwrite").parquet(str(folder / "output" / f"batch={batch}")))
        .listener(listen)
    )
    payments = spark.readStream.schema(PAYMENTS).option("maxFilesPerTrigger", 1).parquet(str(folder / "input"))
    query = pipeline.start(payments, checkpoint=str(folder / "query"))
    try:
        while query.isActive and show.last < until - 1:
            time.sleep(0.05)
    finally:
        query.stop()
    if (error := query.exception()) is not None:
        raise click.ClickException(f"the stream failed: {error}")


def _output(spark: SparkSession, folder: Path) -> DataFrame:
    columns = [column.split()[0] for column in REPORTS.split(", ")]
    return spark.read.schema(REPORTS).parquet(str(folder / "output")).select(*columns)


def _kill_a_slot() -> str:
    """SIGKILL one slot of this application."""
    for process in sorted(Path("/proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):
            if b"emberstate.spark.slot.process" in (process / "cmdline").read_bytes() and _is_ours(int(process.name)):
                os.kill(int(process.name), signal.SIGKILL)
                return f"pid {process.name}"
    return "none was found"


def _is_ours(pid: int) -> bool:
    """Whether a process is below this one, or was: slots are in the session of the process that started Spark."""
    return os.getsid(pid) == os.getsid(0)


class _Display:
    """A table of the last batches, redrawn as they come; lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._batches: list[Progress] = []
        self._notes: dict[int, str] = {}
        self._live: Live | None = None
        self.title = ""
        self.restored = 0

    @property
    def last(self) -> int:
        """The last batch."""
        return self._batches[-1].batch if self._batches else -1

    def __enter__(self) -> None:
        if self._console.is_terminal:
            self._live = Live(self._table(), console=self._console, refresh_per_second=8)
            self._live.start()

    def __exit__(self, *exc: object) -> None:
        if self._live is not None:
            self._live.stop()

    def add(self, progress: Progress) -> None:
        """Show a batch."""
        self._batches.append(progress)
        self.restored += progress.slots["restored"]
        if self._live is None:
            self._console.print(
                f"batch {progress.batch:2}: {progress.rows_in} payments, {progress.rows_out.get('main', 0)} reports, "
                f"slots: {_slots(progress)}, {progress.state_entries} entries, {progress.seconds['total']:.2f} s"
            )
        self._draw()

    def note(self, batch: int, text: str) -> None:
        """Add a remark to a batch."""
        self._notes[batch] = text
        if self._live is None:
            self._console.print(f"  {text}")
        self._draw()

    def moments(self) -> list[Moment]:
        """What happened, for the picture."""
        return [
            Moment(
                one.batch, one.rows_in, one.seconds["total"], sum(one.slots.values()),
                restored=one.slots["restored"] if one.batch else 0,  # at the first there is nothing to restore
                killed="pid" in self._notes.get(one.batch, ""),
            )
            for one in self._batches
            if not one.redelivered
        ]  # fmt: skip

    def _draw(self) -> None:
        if self._live is not None:
            self._live.update(self._table())

    def _table(self) -> Table:
        table = Table(title=self.title or None)
        for name in ("batch", "payments", "reports", "slots", "entries", "delta", "watermark", "seconds", ""):
            table.add_column(name, justify="left" if name in ("slots", "watermark", "") else "right")
        for one in self._batches[-_SHOWN:]:
            table.add_row(
                str(one.batch), str(one.rows_in), str(one.rows_out.get("main", 0)), _slots(one), str(one.state_entries),
                f"{one.delta_bytes:,}", "" if one.watermark is None else f"{one.watermark:%H:%M:%S}",
                f"{one.seconds['total']:.2f}", self._notes.get(one.batch, ""),
            )  # fmt: skip
        return table


def _slots(progress: Progress) -> str:
    if progress.redelivered:
        return "delivered again"
    return ", ".join(f"{count} {how}" for how, count in progress.slots.items() if count)


def _verdict(console: Console, delivered: list[Any], expected: list[Report], show: _Display) -> None:
    if delivered != expected:
        missing, extra = _without(expected, delivered), _without(delivered, expected)
        raise click.ClickException(
            f"the output differs from that of a loop over the same payments: {len(missing)} reports are missing "
            f"({missing[:3]}), {len(extra)} are too many ({extra[:3]}). This is a bug in emberstate."
        )
    sessions = sum(report[1] == "session" for report in expected)
    console.print(
        f"Verified: the {len(expected)} reports ({sessions} sessions closed by timers) are exactly those of a plain "
        f"loop over the same payments, through a killed slot, a restart and another parallelism ({show.restored} slots "
        f"were restored from checkpoints)."
    )


def _without(one: list[Any], other: list[Any]) -> list[Any]:
    left: list[Any] = list(other)
    rest = []
    for item in one:
        if item in left:
            left.remove(item)
        else:
            rest.append(item)
    return rest


def _what_next(console: Console, folder: Path) -> None:
    program = _program()
    console.print("\nLook at what it left behind:")
    commands: list[tuple[str, str]] = [
        (f"{program} checkpoints ls {folder}/state", "the checkpoints"),
        (f"{program} state ls {folder}/state", "the states in the latest"),
        (f"{program} state get {folder}/state merchants card-007", "where card-007 was used last"),
        (f"{program} state top {folder}/state", "the biggest keys and key groups"),
        (f"{program} checkpoints verify {folder}/state", "whether every byte is what was written"),
    ]
    for command, what in commands:
        console.print(f"  {command}\n    [dim]{what}[/dim]", soft_wrap=True)


def _program() -> str:
    """The command for this program, also if it is not in the PATH."""
    if shutil.which("emberstate") is not None:
        return "emberstate"
    python = Path(sys.executable)
    here = Path.cwd()
    return f"{python.relative_to(here) if python.is_relative_to(here) else python} -m emberstate"
