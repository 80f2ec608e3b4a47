"""`emberstate state`: reads the state of a checkpoint: of a key, of the largest keys, of all as files."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any, Final

import click

from emberstate.checkpoint.read.listing import describe_state
from emberstate.checkpoint.read.plain_rows import key_rows, value_text
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.usage import StateUsage, Usage, state_usage
from emberstate.cli.commands.export import export
from emberstate.cli.commands.plot import plot_state
from emberstate.cli.commands.state_keys import state_keys
from emberstate.cli.console import finish, print_json, print_line, print_table, progress, with_old_sizes
from emberstate.cli.exit_codes import PROBLEM
from emberstate.cli.keys import parse_key
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
from emberstate.cli.watch import watch_option
from emberstate.keygroups import KeySchema
from emberstate.units import size_text

_MICROSECOND: Final = datetime.timedelta(microseconds=1)


@click.group()
def state() -> None:
    """Read the state of a checkpoint. Needs no class of the job, and runs no code of it."""


state.add_command(export)
state.add_command(plot_state)
state.add_command(state_keys)


@state.command("ls")
@location_argument
@checkpoint_options
@operator_option
@click.option("--count", is_flag=True, help="Count entries and their live size too; reads everything.")
@json_option
@watch_option
def list_states(
    location: str, checkpoint: int | None, savepoint: str | None, operator: str | None, count: bool, as_json: bool
) -> None:
    """The states and timer queues of a checkpoint, with their types."""
    with open_reader(location, checkpoint, savepoint) as reader:
        names = [pick_operator(reader.manifest, operator).name] if operator is not None else reader.operators
        found = [describe_state(name, stored) for name in names for stored in reader.states(name)]
        if count:
            for name in names:
                usage = _measured(reader, name, [item["state"] for item in found if item["operator"] == name], 0)
                for item in found:
                    if item["operator"] == name:
                        item.update(_amounts(usage.states[item["state"]]))
        if as_json:
            print_json({**chosen(reader.manifest), "states": with_old_sizes(found)})
            return
    columns = ["operator", "state", "kind", "type", "user_key", "ttl", "codec"]
    columns += ["entries", "cells", "live_bytes"] if count else []
    rows = ([size_text(item[c]) if c == "live_bytes" else item[c] for c in columns] for item in found)
    print_table([column.removesuffix("_bytes") for column in columns], rows, right=("entries", "cells", "live"))


def _amounts(usage: Usage) -> dict[str, int]:
    return {"entries": usage.entries, "cells": usage.cells, "live_bytes": usage.bytes}


def _measured(reader: CheckpointReader, operator: str, states: list[str], largest: int) -> StateUsage:
    found = reader.manifest.operator(operator)
    assert found is not None
    with progress(f"reading {operator}", len(states) * found.max_parallelism) as tick:
        return state_usage(reader, operator, states, largest, tick)


@state.command()
@location_argument
@click.argument("name", metavar="STATE")
@click.argument("key")
@checkpoint_options
@operator_option
@json_option
def get(
    location: str,
    name: str,
    key: str,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    as_json: bool,
) -> None:
    """Show what STATE (or timers/QUEUE) holds for KEY. Exit code 1 if nothing.

    A key of one column is written as it is: text, a number, true, an ISO date or time, binary in hexadecimal. A key of
    several columns is a JSON array. After `--` a key may begin with a dash.
    """
    with open_reader(location, checkpoint, savepoint) as reader:
        found = pick_operator(reader.manifest, operator)
        pick_states(reader, found.name, [name])
        schema = KeySchema(found.key_schema)
        parsed = parse_key(key, schema)
        stored = next(stored for stored in reader.states(found.name) if stored.address == name)
        rows, _ = key_rows(reader, found.name, stored, parsed)
        if as_json:
            print_json(
                {
                    **chosen(reader.manifest),
                    "operator": found.name,
                    "state": name,
                    "state_kind": stored.kind,
                    "key": parsed,
                    "key_group": schema.key_group(parsed, found.max_parallelism),
                    "rows": rows,
                }
            )
        elif rows:
            columns = [column for column in rows[0] if any(row[column] not in ("", None, False) for row in rows)]
            columns = columns or ["value"]
            print_table(columns, ([value_text(row[column]) for column in columns] for row in rows), right=("position",))
        else:
            print_line(f"key {key} has nothing in {stored.label}")
    finish(0 if rows else PROBLEM)


@state.command()
@location_argument
@checkpoint_options
@operator_option
@click.option("--state", "names", metavar="NAME", multiple=True, help="This state; may be given again. Default: all.")
@click.option("-n", "largest", type=click.IntRange(min=1), default=10, show_default=True, help="Keys and key groups.")
@json_option
@watch_option
def top(
    location: str,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    names: tuple[str, ...],
    largest: int,
    as_json: bool,
) -> None:
    """The largest keys and key groups, by live size. Reads everything."""
    with open_reader(location, checkpoint, savepoint) as reader:
        found = pick_operator(reader.manifest, operator)
        usage = _measured(reader, found.name, pick_states(reader, found.name, names), largest)
        groups = sorted(usage.key_groups, key=lambda group: (-usage.of_group(group).bytes, group))[:largest]
        result = {
            **chosen(reader.manifest),
            "operator": found.name,
            "states": [{"state": name, **_amounts(amount)} for name, amount in usage.states.items()],
            "keys": [
                {"state": item.state, "key": item.key, "key_group": item.key_group, **_amounts(item.usage)}
                for item in usage.keys
            ],
            "key_groups": [
                {
                    "key_group": group,
                    **_amounts(usage.of_group(group)),
                    "states": {name: amount.bytes for name, amount in usage.key_groups[group].items()},
                }
                for group in groups
            ],
        }
    if as_json:
        print_json(with_old_sizes(result))
        return
    numbers = ("entries", "cells", "live", "share", "key group")
    total = max(1, usage.total().bytes)
    print_table(("state", "entries", "cells", "live", "share"), _rows(result["states"], total, "state"), numbers)
    print_line()
    rows = _rows(result["keys"], total, "key", "state", "key_group")
    print_table(("key", "state", "key group", "entries", "cells", "live", "share"), rows, numbers)
    print_line()
    print_table(
        ("key group", "entries", "cells", "live", "share"), _rows(result["key_groups"], total, "key_group"), numbers
    )


def _rows(items: Any, total: int, *names: str) -> Iterator[tuple[Any, ...]]:
    for item in items:
        share = f"{100 * item['live_bytes'] / total:.1f} %"
        cells = (value_text(item[name]) for name in names)
        yield (*cells, item["entries"], item["cells"], size_text(item["live_bytes"]), share)
