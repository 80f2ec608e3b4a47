"""`emberstate savepoint`: makes one from a checkpoint, checks it against a program, rewrites it offline."""

from __future__ import annotations

import errno
import shutil
import tempfile
from collections.abc import Iterable
from typing import Any, Final

import click

from emberstate.checkpoint.commit.savepoint import write_savepoint
from emberstate.checkpoint.manifest.catalogue import read_savepoint
from emberstate.checkpoint.manifest.model import Manifest, Operator
from emberstate.checkpoint.offline.rewrite import OperatorRewrite, rewrite_savepoint
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.sizes import stored_bytes
from emberstate.checkpoint.read.summaries import summary
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.operators import OperatorSpec, judge, opened_operators
from emberstate.checkpoint.restore.verdict import RestoreVerdict, StateVerdict
from emberstate.cli.commands.savepoint_list import describe, list_savepoints, rm
from emberstate.cli.console import Refused, finish, note, print_json, print_line, print_table, progress, with_old_sizes
from emberstate.cli.exit_codes import PROBLEM
from emberstate.cli.selection import (
    checkpoint_options,
    chosen,
    json_option,
    location_argument,
    open_location,
    open_reader,
    operator_option,
    pairs,
    pick_operator,
    savepoint_argument,
)
from emberstate.cli.user_functions import declared_states, load_function
from emberstate.clock import SystemClock
from emberstate.errors import RestoreRefusedError, StorageError
from emberstate.keygroups import KeySchema
from emberstate.runtime.operator.slot import broadcast_operator_name
from emberstate.state.ttl.config import TtlClock
from emberstate.storage.interface import Storage
from emberstate.storage.uri import open_storage
from emberstate.units import size_text

_NOT_WRITABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS)

to_option = click.option("--to", "target", metavar="LOCATION", help="Where it is written. Default: the same location.")


@click.group()
def savepoint() -> None:
    """List and make savepoints, check them against a program, rewrite and delete them."""


savepoint.add_command(list_savepoints)
savepoint.add_command(describe)
savepoint.add_command(rm)


@savepoint.command()
@location_argument
@click.argument("name")
@click.option("--checkpoint", type=click.IntRange(min=0), metavar="N", help="Default: the newest.")
@to_option
@json_option
def create(location: str, name: str, checkpoint: int | None, target: str | None, as_json: bool) -> None:
    """Copy a checkpoint, whole, to savepoint NAME. The job may run meanwhile; it is not taken over.

    The checkpoint is pinned while it is copied. A location that cannot be written is read without a pin.
    """
    storage = open_location(location)
    destination = storage if target is None else open_storage(target)
    destination.check_conditional_create()
    with _pinned(storage, checkpoint) as reader:
        manifest = reader.manifest
        with progress("copying", stored_bytes(manifest.operators)) as tick:
            saved = write_savepoint(storage, manifest, destination, name, progress=tick)
    _print_saved(saved, manifest, destination, name, as_json)


def _pinned(storage: Storage, number: int | None) -> CheckpointReader:
    try:
        return CheckpointReader.open(storage, number, pin_for="emberstate savepoint create")
    except StorageError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        note(f"writing a pin failed, so the job may collect the checkpoint meanwhile: {error}")
        return CheckpointReader.open(storage, number)


def _print_saved(saved: Manifest, source: Manifest, destination: Storage, name: str, as_json: bool) -> None:
    numbers = summary(saved)
    if as_json:
        print_json({"location": destination.describe(), "name": name, **with_old_sizes(numbers)})
        return
    batch = "before the first batch" if saved.batch is None else f"after batch {saved.batch.id}"
    print_line(
        f"savepoint {name} in {destination.describe()}: checkpoint {source.number} of job {saved.job!r}, {batch}; "
        f"{numbers['files']} files, {size_text(numbers['stored_bytes'])}"
    )


@savepoint.command("restore-check")
@location_argument
@click.option("--function", "function_name", required=True, metavar="MODULE:NAME", help="A class, or an object.")
@checkpoint_options
@operator_option
@click.option("--drop-state", "drops", multiple=True, metavar="STATE", help="As drop_states=[…] of the program.")
@click.option("--keep-state", "keeps", multiple=True, metavar="STATE", help="As keep_states=[…].")
@click.option("--rename", "renames", multiple=True, metavar="OLD=NEW", help="As rename_states={…}.")
@click.option("--rename-field", "fields", multiple=True, metavar="STATE:FIELD=NEW", help="As rename_fields={…}.")
@click.option("--parallelism", type=click.IntRange(min=1), metavar="N", help="Default: as stored.")
@json_option
def restore_check(
    location: str,
    function_name: str,
    checkpoint: int | None,
    savepoint: str | None,
    operator: str | None,
    drops: tuple[str, ...],
    keeps: tuple[str, ...],
    renames: tuple[str, ...],
    fields: tuple[str, ...],
    parallelism: int | None,
    as_json: bool,
) -> None:
    """Check whether a function can resume from a checkpoint or savepoint, and what happens to each state.

    Imports the function, from the current directory or an installed package, and opens it over the stored keys. Exit
    code 1 if a restore would be rejected.
    """
    with open_reader(location, checkpoint, savepoint) as reader:
        manifest, storage = reader.manifest, reader.storage
    stored = _keyed_operator(manifest, operator)
    keyed, broadcast = declared_states(load_function(function_name), stored)
    specs = [
        OperatorSpec(
            name=stored.name,
            key_schema=KeySchema(stored.key_schema),
            parallelism=parallelism or stored.parallelism,
            max_parallelism=stored.max_parallelism,
            declared=keyed,
            choices=RestoreChoices(drops, keeps, pairs(renames, "--rename"), _field_renames(fields)),
        )
    ]
    side = manifest.operator(broadcast_operator_name(stored.name))
    if side is not None:
        keys = KeySchema(side.key_schema)
        specs.append(OperatorSpec(name=side.name, key_schema=keys, max_parallelism=1, declared=broadcast))
    verdict = _judged(storage, manifest, specs)
    if as_json:
        print_json({**chosen(manifest), "operator": stored.name, "function": function_name, **verdict.to_dict()})
    else:
        print_line(verdict.kind)
        rows = ((state.name, state.kind, str(state)) for state in (*verdict.problems, *verdict.states))
        print_table(("state", "verdict", "why, and what to do"), rows)
    finish(PROBLEM if verdict.kind == "refused" else 0)


def _keyed_operator(manifest: Manifest, name: str | None) -> Operator:
    """The operator of a function; its broadcast state is not a second one."""
    names = {operator.name for operator in manifest.operators}
    keyed = sorted(names - {broadcast_operator_name(other) for other in names})
    return pick_operator(manifest, keyed[0] if name is None and len(keyed) == 1 else name)


def _field_renames(values: Iterable[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for place, new in pairs(tuple(values), "--rename-field").items():
        state, colon, path = place.partition(":")
        if not colon or not state or not path:
            raise click.BadParameter(f"{place!r} is not of the form STATE:FIELD", param_hint="--rename-field")
        found.setdefault(state, {})[path] = new
    return found


def _judged(storage: Storage, manifest: Manifest, specs: list[OperatorSpec]) -> RestoreVerdict:
    now = SystemClock().now_micros()
    clock = TtlClock()
    clock.processing_time = now
    clock.event_time = None if manifest.times is None else manifest.times.watermark
    verdicts = [
        judge(storage, stored, spec, clock) for spec in specs if (stored := manifest.operator(spec.name)) is not None
    ]
    states = tuple(state for verdict in verdicts for state in verdict.states)
    problems = tuple(problem for verdict in verdicts for problem in verdict.problems)
    result = RestoreVerdict(states, problems)
    if result.kind != "refused":
        others = [operator.name for operator in manifest.operators]
        try:  # what a start would do, slots included
            opened_operators(storage, manifest, specs, "", now, others)
        except RestoreRefusedError as error:
            return RestoreVerdict(states, (*problems, StateVerdict("parallelism", "refused", (), str(error))))
    return result


@savepoint.command()
@location_argument
@savepoint_argument
@click.option("--to-name", required=True, metavar="NEW", help="The name of the result.")
@to_option
@operator_option
@click.option("--max-parallelism", type=click.IntRange(min=1), metavar="N", help="Another number of key groups.")
@click.option("--drop-state", "drops", multiple=True, metavar="STATE", help="Leave a state out; may be given again.")
@click.option("--rename-state", "renames", multiple=True, metavar="OLD=NEW", help="May be given again.")
@click.option("--rename-operator", "operators", multiple=True, metavar="OLD=NEW", help="May be given again.")
@json_option
def rewrite(
    location: str,
    name: str,
    to_name: str,
    target: str | None,
    operator: str | None,
    max_parallelism: int | None,
    drops: tuple[str, ...],
    renames: tuple[str, ...],
    operators: tuple[str, ...],
    as_json: bool,
) -> None:
    """Rewrite savepoint NAME into a new one, which is read back and compared before it is committed.

    With several operators, --max-parallelism is for all of them unless --operator names one; states are dropped and
    renamed in that one, or in the only one that has them. A timer queue is timers/QUEUE. Broadcast state follows its
    operator.
    """
    storage = open_location(location)
    manifest = read_savepoint(storage, name)
    destination = storage if target is None else open_storage(target)
    destination.check_conditional_create()
    with CheckpointReader(storage, manifest) as reader:
        rewrites, steps = _rewrites(
            reader,
            operator,
            max_parallelism,
            drops,
            pairs(renames, "--rename-state"),
            pairs(operators, "--rename-operator"),
        )
    if max_parallelism is not None:
        size, folder = stored_bytes(manifest.operators), tempfile.gettempdir()
        free = shutil.disk_usage(folder).free
        note(
            f"keys go to other groups: about {size_text(size)} in {folder} are needed meanwhile, {size_text(free)} are "
            f"free there (TMPDIR names another directory)"
        )
    with progress("rewriting", steps) as tick:
        saved = rewrite_savepoint(storage, manifest, destination, to_name, rewrites, progress=tick)
    _print_saved(saved, manifest, destination, to_name, as_json)


def _rewrites(
    reader: CheckpointReader,
    operator: str | None,
    max_parallelism: int | None,
    drops: tuple[str, ...],
    renames: dict[str, str],
    names: dict[str, str],
) -> tuple[dict[str, OperatorRewrite], int]:
    """The rewrite of each operator, and the number of key groups that it reads, state by state."""
    manifest = reader.manifest
    there = {found.name: {stored.address for stored in reader.states(found.name)} for found in manifest.operators}
    if operator is not None and operator not in there:
        raise Refused(f"{manifest.describe()} has no operator {operator!r}; it has {list(there)}")
    for old in names:
        if old not in there:
            raise Refused(f"{manifest.describe()} has no operator {old!r}; it has {list(there)}")
    sides = {broadcast_operator_name(found): found for found in there}
    owners = {state: _owner(state, there, operator) for state in (*drops, *renames)}
    rewrites, steps = {}, 0
    for found in manifest.operators:
        mine = {state for state, owner in owners.items() if owner == found.name}
        groups = None if found.name in sides or operator not in (None, found.name) else max_parallelism
        main = sides.get(found.name)
        follows = broadcast_operator_name(names[main]) if main in names else None
        rewrites[found.name] = OperatorRewrite(
            name=names.get(found.name, follows),
            max_parallelism=groups,
            drop_states=frozenset(drops) & mine,
            rename_states={old: new for old, new in renames.items() if old in mine},
        )
        states = len(there[found.name] - (set(drops) & mine))
        steps += states * (found.max_parallelism + (groups or found.max_parallelism))
    return rewrites, steps


def _owner(state: str, there: dict[str, set[str]], operator: str | None) -> str:
    """The operator that has a state of this name."""
    having = [name for name, states in there.items() if state in states and operator in (None, name)]
    if len(having) > 1:
        raise click.UsageError(f"operators {having} have a state {state!r}: choose one by --operator")
    if not having:
        all_states: Any = there if operator is None else there[operator]
        raise Refused(f"there is no state {state!r}; there are {all_states}")
    return having[0]
