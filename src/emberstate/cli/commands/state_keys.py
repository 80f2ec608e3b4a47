"""`emberstate state keys`: the keys that have a state."""

from __future__ import annotations

import fnmatch
from typing import Any, Final

import click

from emberstate.checkpoint.read.usage import key_usages
from emberstate.cli.console import Refused, note, print_json, print_table, progress
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
from emberstate.codec.key_text import text_of_key
from emberstate.units import size_text

_LIMIT: Final = 100


@click.command("keys")
@location_argument
@click.argument("name", metavar="STATE")
@click.option("--key-group", "groups", type=click.IntRange(min=0), multiple=True, metavar="N", help="Or several.")
@click.option("--match", "pattern", metavar="PATTERN", help="As a shell matches names: 'card-*', '[ab]?'.")
@click.option("--limit", type=click.IntRange(min=1), default=_LIMIT, show_default=True, metavar="N")
@checkpoint_options
@operator_option
@json_option
def state_keys(
    location: str,
    name: str,
    groups: tuple[int, ...],
    pattern: str | None,
    limit: int,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    as_json: bool,
) -> None:
    """The keys that have STATE (or timers/QUEUE), by key group, with their live sizes.

    Keys are written as `state get` takes them, and --match compares them so. Reads until there are --limit keys, and
    says if there are more.
    """
    with open_reader(location, checkpoint, savepoint) as reader:
        found = pick_operator(reader.manifest, operator)
        pick_states(reader, found.name, [name])
        for group in groups:
            if group >= found.max_parallelism:
                last = found.max_parallelism - 1
                raise Refused(f"operator {found.name!r} has the key groups 0 to {last}, and not {group}")
        keys: list[dict[str, Any]] = []
        cut = False
        with progress("reading keys", len(set(groups)) or found.max_parallelism) as tick:
            for usage in key_usages(reader, found.name, name, groups or None, tick):
                text = text_of_key(usage.key)
                if pattern is not None and not fnmatch.fnmatchcase(text, pattern):
                    continue
                if len(keys) == limit:
                    cut = True
                    break
                amount = usage.usage
                keys.append(
                    {
                        "key": usage.key, "text": text, "key_group": usage.key_group, "entries": amount.entries,
                        "cells": amount.cells, "live_bytes": amount.bytes,
                    }
                )  # fmt: skip
        if as_json:
            print_json({**chosen(reader.manifest), "operator": found.name, "state": name, "keys": keys, "cut": cut})
            return
    columns = ("key", "key group", "entries", "cells", "live")
    rows = (
        (item["text"], item["key_group"], item["entries"], item["cells"], size_text(item["live_bytes"]))
        for item in keys
    )
    print_table(columns, rows, right=columns[1:])
    if cut:
        note(f"cut after {limit} keys: there are more; --limit, --key-group and --match choose")
