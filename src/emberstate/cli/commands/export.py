"""`emberstate state export`: states as files with typed columns."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pyarrow as pa

from emberstate.checkpoint.manifest.model import Operator
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.state_columns import StateColumns
from emberstate.cli.console import Refused, Tick, print_json, print_table, progress
from emberstate.cli.export_files import FORMATS, write_file
from emberstate.cli.selection import (
    checkpoint_options,
    chosen,
    json_option,
    location_argument,
    open_reader,
    operator_option,
    pick_operator,
    pick_states,
)
from emberstate.units import size_text

_FORMAT_NAMES: Final = [ending.removeprefix(".") for ending in FORMATS]
#: What looks like the ending of a file's name.
_ENDING: Final = re.compile(r"\.[A-Za-z][A-Za-z0-9]*")


@click.command()
@location_argument
@click.option(
    "--to", "target", required=True, type=click.Path(path_type=Path),
    help="A folder; or, for one state, a file that ends with " + ", ".join(FORMATS) + ".",
)  # fmt: skip
@click.option("--format", "format_name", type=click.Choice(_FORMAT_NAMES), help="In a folder. Default: parquet.")
@checkpoint_options
@operator_option
@click.option("--state", "names", metavar="NAME", multiple=True, help="This state; may be given again. Default: all.")
@click.option("--pin", is_flag=True, help="Keep the checkpoint from being collected meanwhile: writes a pin.")
@click.option("--overwrite", is_flag=True, help="Replace files that exist.")
@json_option
def export(
    location: str,
    target: Path,
    format_name: str | None,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    names: tuple[str, ...],
    pin: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write states to Parquet, CSV or JSON, with typed columns: one to a file, or a file for each below a folder.

    The ending of the file's name is its format. In a folder the files are STATE.parquet and timers/QUEUE.parquet, or as
    --format says. Existing files are not overwritten, unless --overwrite is given; then each is replaced when it is
    complete.
    """
    with open_reader(location, checkpoint, savepoint, "emberstate state export" if pin else None) as reader:
        found = pick_operator(reader.manifest, operator)
        files = _files(target, format_name, pick_states(reader, found.name, names))
        for file in files.values():
            if file.is_dir() or (file.exists() and not overwrite):
                raise Refused(f"{file} exists and is not overwritten: name another file or folder, or give --overwrite")
        written = []
        with progress("exporting", 2 * len(files) * found.max_parallelism) as tick:
            for name, file in files.items():
                rows = _exported(reader, found, name, file, overwrite, tick)
                written.append({"state": name, "file": str(file), "rows": rows, "bytes": file.stat().st_size})
        if as_json:
            print_json({**chosen(reader.manifest), "operator": found.name, "files": written})
            return
    rows_ = ((item["state"], item["rows"], size_text(int(str(item["bytes"]))), item["file"]) for item in written)
    print_table(("state", "rows", "size", "file"), rows_, right=("rows", "size"))


def _files(target: Path, format_name: str | None, states: list[str]) -> dict[str, Path]:
    """The file of each state."""
    if target.is_dir() or _ENDING.fullmatch(target.suffix) is None:
        return {name: target / f"{name}.{format_name or 'parquet'}" for name in states}
    if target.suffix not in FORMATS:
        raise Refused(
            f"{target} looks like a file, and its ending names no format: expected {', '.join(FORMATS)}. A folder with "
            f"such a name must exist before"
        )
    if format_name not in (None, target.suffix.removeprefix(".")):
        raise click.UsageError(f"--to names a {target.suffix} file, --format {format_name}: give one of them")
    if len(states) != 1:
        raise Refused(f"{target} is one file, and there are {len(states)} states: choose one by --state, of {states}")
    return {states[0]: target}


def _exported(
    reader: CheckpointReader, operator: Operator, name: str, file: Path, overwrite: bool, tick: Tick
) -> int:
    """Write one state; returns the number of rows."""
    table = reader.table(operator.name, name)
    if table.needs_profile:
        for groups, entries in reader.scan(operator.name, table):
            table.look_at(entries)
            tick(len(groups))
    else:
        tick(operator.max_parallelism)
    manifest = reader.manifest
    about = {"job": manifest.job, "checkpoint": manifest.number, "operator": operator.name, "state": name}
    schema = table.schema().with_metadata({f"emberstate.{k}": str(v) for k, v in about.items()})
    return write_file(file, schema, _batches(reader, operator, table, tick), overwrite)


def _batches(reader: CheckpointReader, operator: Operator, table: StateColumns, tick: Tick) -> Iterator[pa.RecordBatch]:
    schema = table.schema()
    for groups, entries in reader.scan(operator.name, table):
        if entries:
            yield table.batch(entries, schema)
        tick(len(groups))
