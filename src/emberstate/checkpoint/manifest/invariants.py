"""The invariants of a manifest, and `open_manifest`, which holds every manifest to them, whatever its writer.

1. The slots of an operator cover all key groups, each once, in order.
2. A slot takes a state file for its own key groups only, and for each once. Within a slot, a base precedes
   every delta of the same key groups.
3. Paths are plain relative names (`storage.paths`) below the folders of `layout`.
4. A chain is bounded, and so is the manifest.

Thread safety: pure functions.
"""

from __future__ import annotations

import itertools
from typing import Final

from emberstate.checkpoint.manifest.decisions import FileDecisions, PastChoices
from emberstate.checkpoint.manifest.envelope import open_sealed, parse
from emberstate.checkpoint.manifest.layout import CHECKPOINTS, OUTPUT, SAVEPOINTS, STATE
from emberstate.checkpoint.manifest.model import (
    PARQUET_OUTPUTS,
    FileRef,
    Groups,
    Manifest,
    Operator,
    SlotChain,
)
from emberstate.errors import CorruptionError, EmberstateError, RestoreRefusedError
from emberstate.keygroups import KeySchema, check_max_parallelism
from emberstate.storage.paths import is_path

#: What this reader supports beyond version 1.
KNOWN_REQUIREMENTS: Final[frozenset[str]] = frozenset({PARQUET_OUTPUTS})

_FOLDERS: Final = (STATE, OUTPUT, CHECKPOINTS, SAVEPOINTS)


def open_manifest(data: bytes, name: str) -> Manifest:
    """Return the manifest in a file's bytes; `name` is the file's.

    Raises:
        CorruptionError: it is damaged, or breaks an invariant.
        RestoreRefusedError: a later version wrote it.
    """
    return check_manifest(open_sealed("manifest", data, Manifest, name=name), name)


def parse_manifest(body: bytes, name: str) -> Manifest:
    """Return the manifest in a file's body, without a checksum."""
    return check_manifest(parse(body, Manifest, name), name)


def check_manifest(manifest: Manifest, name: str) -> Manifest:
    """Return the manifest if it keeps the invariants, else raise."""
    unknown = sorted(set(manifest.requires) - KNOWN_REQUIREMENTS)
    if unknown:
        raise RestoreRefusedError(
            f"{name}: the manifest requires {unknown[:10]}, which this version does not support; emberstate "
            f"{manifest.library} wrote it. Use that version or a later one.",
            path=name,
            checkpoint=manifest.number,
            expected=tuple(sorted(KNOWN_REQUIREMENTS)),
            found=tuple(unknown[:10]),
        )
    try:
        _check_operators(manifest.operators)
        for ref in manifest.file_refs():
            check_ref(ref)
    except EmberstateError as error:
        what = f"{name}: the manifest breaks an invariant: {error!s:.300}"
        raise CorruptionError(what, path=name, checkpoint=manifest.number).located(**error.place) from None
    return manifest


def _check_operators(operators: tuple[Operator, ...]) -> None:
    names = [operator.name for operator in operators]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CorruptionError(f"two operators have the same name: {names!r:.200}", operator=twice)
    for operator in operators:
        try:
            _check_operator(operator)
        except EmberstateError as error:
            error.located(operator=operator.name)
            raise


def _check_operator(operator: Operator) -> None:
    check_max_parallelism(operator.max_parallelism)
    if KeySchema(list(operator.key_schema)).type_names != operator.key_schema:
        raise CorruptionError(f"operator {operator.name!r} has an invalid key schema {operator.key_schema!r:.200}")
    if operator.settled:
        PastChoices.from_dict(operator.settled)
    _check_slots(operator)


def _check_slots(operator: Operator) -> None:
    bounds = [-1, *itertools.chain.from_iterable(slot.groups for slot in operator.slots), operator.max_parallelism]
    pairs = itertools.pairwise(bounds)
    # End of one and start of the next are neighbours; start and end of one are in order.
    if any(a + 1 != b if number % 2 == 0 else a > b for number, (a, b) in enumerate(pairs)):
        raise CorruptionError(
            f"the slots of operator {operator.name!r} do not cover each of its {operator.max_parallelism} key groups "
            f"once: {[slot.groups for slot in operator.slots]!r:.200}",
            option="slots",
            expected=operator.max_parallelism,
        )
    for slot in operator.slots:
        _check_chain(operator.name, slot)


def _check_chain(operator: str, slot: SlotChain) -> None:
    low, high = slot.groups
    written = bytearray(high - low + 1)
    taken: dict[object, list[Groups]] = {}
    for file in slot.files:
        first, last = file.groups
        if not low <= first <= last <= high:
            raise CorruptionError(
                f"slot {slot.groups} of operator {operator!r} has a file of key groups {file.groups}",
                expected=slot.groups,
                found=file.groups,
            )
        if file.evolution:
            FileDecisions.from_dict(file.evolution)
        taken.setdefault(file.id, []).append(file.groups)
        taken.setdefault((file.place.path, file.place.offset), []).append(file.groups)
        part = slice(first - low, last - low + 1)
        if file.kind == "base" and any(written[part]):
            said = f"base {file.id!r} of operator {operator!r} follows files of the same key groups"
            raise CorruptionError(said, found=file.id)
        written[part] = b"\x01" * (last - first + 1)
    for what, groups in taken.items():
        if any(after[0] <= before[1] for before, after in itertools.pairwise(sorted(groups))):
            said = f"operator {operator!r} takes file {what!r:.200} twice for the same key groups"
            raise CorruptionError(said, found=what)


def check_ref(ref: FileRef) -> None:
    """Reject a reference to a path that no file of a checkpoint can have."""
    if not is_path(ref.path) or ref.path.split("/")[0] not in _FOLDERS:
        what = f"{ref.path!r:.200} cannot be a file of a checkpoint"
        raise CorruptionError(what, path=ref.path[:200], found=ref.path[:200])
