"""Arguments and options that commands share: location, checkpoint, operator, states, JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, savepoint_names
from emberstate.checkpoint.manifest.location_hints import nothing_in
from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.cli.console import Refused
from emberstate.errors import EmberstateError
from emberstate.storage.interface import Storage
from emberstate.storage.local import LocalStorage
from emberstate.storage.uri import open_storage

F = TypeVar("F", bound=Callable[..., Any])

def folders(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Tell the shell to complete a location with the names of directories."""
    return [CompletionItem(incomplete, type="dir")]


def _saved(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The savepoints of the location before, for the shell. Only of a local one: a key press starts no traffic."""
    try:
        storage = open_storage(ctx.params.get("location") or "")
        names = savepoint_names(storage) if isinstance(storage, LocalStorage) else []
    except EmberstateError:
        return []
    return [name for name in names if name.startswith(incomplete)]


location_argument = click.argument("location", shell_complete=folders)
savepoint_argument = click.argument("name", shell_complete=_saved)
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document instead of tables.")
operator_option = click.option("--operator", metavar="NAME", help="Which operator; needed if there are several.")


def checkpoint_options(command: F) -> F:
    """`--checkpoint N` and `--savepoint NAME`; the newest checkpoint if neither is given."""
    command = click.option("--savepoint", metavar="NAME", help="A savepoint instead of a checkpoint.")(command)
    return click.option("--checkpoint", type=click.IntRange(min=0), metavar="N", help="Default: the newest.")(command)


def open_location(location: str) -> Storage:
    """The storage of a location; raises if it has neither checkpoint nor savepoint."""
    storage = open_storage(location)
    if not checkpoint_numbers(storage) and not savepoint_names(storage):
        raise Refused(f"there is no checkpoint and no savepoint: {nothing_in(storage)}")
    return storage


def open_reader(
    location: str, checkpoint: int | None, savepoint: str | None, pin_for: str | None = None
) -> CheckpointReader:
    """Open the chosen checkpoint or savepoint."""
    if checkpoint is not None and savepoint is not None:
        raise click.UsageError("give --checkpoint or --savepoint, not both")
    storage = open_location(location)
    if savepoint is not None:
        pin_for = None  # savepoints are not collected
    return CheckpointReader.open(storage, checkpoint, savepoint=savepoint, pin_for=pin_for)


def pick_operator(manifest: Manifest, name: str | None) -> Operator:
    """The operator of a name, or the only one."""
    names = [operator.name for operator in manifest.operators]
    if name is None:
        if len(names) != 1:
            raise click.UsageError(f"{manifest.describe()} has the operators {names}: choose one by --operator")
        name = names[0]
    found = manifest.operator(name)
    if found is None:
        raise Refused(f"{manifest.describe()} has no operator {name!r}; it has {names}")
    return found


def pick_states(reader: CheckpointReader, operator: str, names: Sequence[str]) -> list[str]:
    """The addresses of the named states, or of all."""
    there = [stored.address for stored in reader.states(operator)]
    for name in names:
        if name not in there:
            raise Refused(f"operator {operator!r} has no state {name!r}; it has {there}")
    return list(dict.fromkeys(names)) or there


def pairs(values: Sequence[str], option: str) -> dict[str, str]:
    """The pairs of options of the form `old=new`."""
    found: dict[str, str] = {}
    for value in values:
        old, equals, new = value.partition("=")
        if not equals or not old or not new:
            raise click.BadParameter(f"{value!r} is not of the form OLD=NEW", param_hint=option)
        if old in found:
            raise click.BadParameter(f"{old!r} is given twice", param_hint=option)
        found[old] = new
    return found


def chosen(manifest: Manifest) -> dict[str, Any]:
    """The fields by which JSON names the checkpoint."""
    source = "savepoint" if manifest.kind == "savepoint" else "checkpoint"
    batch = None if manifest.batch is None else manifest.batch.id
    return {"job": manifest.job, "source": source, "number": manifest.number, "batch": batch}
