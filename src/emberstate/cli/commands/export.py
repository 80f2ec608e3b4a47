"""`emberstate state export`: states as Parquet files with typed columns."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa
import pyarrow.parquet as pq

from emberstate.checkpoint.manifest.model import Operator
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.state_columns import StateColumns
from emberstate.cli.console import Refused, Tick, print_json, print_table, progress
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
from emberstate.errors import EmberstateError
from emberstate.units import size_text


@click.command()
@location_argument
@click.option("--to", "target", required=True, type=click.Path(path_type=Path), help="A folder; or FILE.parquet.")
@checkpoint_options
@operator_option
@click.option("--state", "names", metavar="NAME", multiple=True, help="This state; may be given again. Default: all.")
@click.option("--pin", is_flag=True, help="Keep the checkpoint from being collected meanwhile: writes a pin.")
@json_option
def export(
    location: str,
    target: Path,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    names: tuple[str, ...],
    pin: bool,
    as_json: bool,
) -> None:
    """Write states to Parquet, with typed columns: a file for each, below a folder.

    The files are STATE.parquet and timers/QUEUE.parquet. One state may go to a file instead, if --to ends with
    .parquet. Existing files are never overwritten.
    """
    with open_reader(location, checkpoint, savepoint, "emberstate state export" if pin else None) as reader:
        found = pick_operator(reader.manifest, operator)
        states = pick_states(reader, found.name, names)
        files = {name: _file(target, name, len(states)) for name in states}
        for file in files.values():
            if file.exists():
                raise Refused(f"{file} exists and is not overwritten: name another file or folder")
        written = []
        with progress("exporting", 2 * len(states) * found.max_parallelism) as tick:
            for name, file in files.items():
                rows = _exported(reader, found, name, file, tick)
                written.append({"state": name, "file": str(file), "rows": rows, "bytes": file.stat().st_size})
        if as_json:
            print_json({**chosen(reader.manifest), "operator": found.name, "files": written})
            return
    rows_ = ((item["state"], item["rows"], size_text(int(str(item["bytes"]))), item["file"]) for item in written)
    print_table(("state", "rows", "size", "file"), rows_, right=("rows", "size"))


def _file(target: Path, name: str, count: int) -> Path:
    if target.suffix == ".parquet" and count == 1 and not target.is_dir():
        return target
    return target / f"{name}.parquet"


def _exported(reader: CheckpointReader, operator: Operator, name: str, file: Path, tick: Tick) -> int:
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
    # Under another name until it is complete.
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    rows = 0
    try:
        with pq.ParquetWriter(part, schema, compression="zstd") as writer:
            for batch in _batches(reader, operator, table, tick):
                writer.write_batch(batch.replace_schema_metadata(schema.metadata))
                rows += batch.num_rows
        os.link(part, file)  # unlike a rename, it overwrites nothing
    except EmberstateError:
        raise  # of reading
    except (pa.ArrowException, OSError) as error:
        raise Refused(f"writing {file} failed: {error}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink()
    return rows


def _batches(reader: CheckpointReader, operator: Operator, table: StateColumns, tick: Tick) -> Iterator[pa.RecordBatch]:
    schema = table.schema()
    for groups, entries in reader.scan(operator.name, table):
        if entries:
            yield table.batch(entries, schema)
        tick(len(groups))
