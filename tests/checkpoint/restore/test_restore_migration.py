"""A program that changes several times before a base is written: files are read as if one had been each time."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any

import pytest

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.manifest.decisions import NO_DECISIONS, FileDecisions
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import RestoreRefusedError, StorageError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import StateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlConfig
from tests.raising import raising


@dataclasses.dataclass
class Amount:
    id: int
    amount: float


@dataclasses.dataclass
class Total:
    id: int
    total: float = 0.0


@dataclasses.dataclass
class Sum:
    id: int
    sum: float = 0.0


@dataclasses.dataclass
class Bare:
    id: int


@dataclasses.dataclass
class AmountAgain:
    """A field of the old name that has nothing to do with the old one."""

    id: int
    amount: float = -1.0


@dataclasses.dataclass
class Outer:
    customer: Amount


@dataclasses.dataclass
class OuterRenamed:
    client: Amount


@dataclasses.dataclass
class OuterInnerRenamed:
    client: Total


def v(type_: Any, name: str = "v", **options: Any) -> ValueStateDescriptor[Any]:
    return ValueStateDescriptor(name, type_, **options)


TTL = TtlConfig(timedelta(hours=1))
FIRST = Amount(7, 2.5)
LATER: dict[Any, Any] = {AmountAgain: AmountAgain(1, 3.0), Total: Total(2, 9.0), int: 6, Bare: Bare(4)}

#: First value, and then the programs: what they declare, and the options they are started with.
CHAINS: dict[str, tuple[Any, list[tuple[StateDescriptor, dict[str, Any]]]]] = {
    "renamed twice": (
        FIRST,
        [
            (v(Amount), {}),
            (v(Total), {"rename_fields": {"v": {"amount": "total"}}}),
            (v(Sum), {"rename_fields": {"v": {"total": "sum"}}}),
        ],
    ),
    "renamed there and back": (
        FIRST,
        [
            (v(Amount), {}),
            (v(Total), {"rename_fields": {"v": {"amount": "total"}}}),
            (v(Amount), {"rename_fields": {"v": {"total": "amount"}}}),
        ],
    ),
    "removed, and another of its name": (FIRST, [(v(Amount), {}), (v(Bare), {}), (v(AmountAgain), {})]),
    "renamed, and another of its name": (
        FIRST,
        [
            (v(Amount), {}),
            (v(Total), {"rename_fields": {"v": {"amount": "total"}}}),
            (v(Bare), {}),
            (v(AmountAgain), {}),
        ],
    ),
    "renamed, then removed": (
        FIRST,
        [(v(Amount), {}), (v(Total), {"rename_fields": {"v": {"amount": "total"}}}), (v(Bare), {})],
    ),
    "inside of a renamed field": (
        Outer(FIRST),
        [
            (v(Outer), {}),
            (v(OuterRenamed), {"rename_fields": {"v": {"customer": "client"}}}),
            (v(OuterInnerRenamed), {"rename_fields": {"v": {"client.amount": "total"}}}),
        ],
    ),
    "the state renamed twice": (
        FIRST,
        [
            (v(Amount), {}),
            (v(Total, "w"), {"rename_states": {"v": "w"}, "rename_fields": {"v": {"amount": "total"}}}),
            (v(Sum, "x"), {"rename_states": {"w": "x"}, "rename_fields": {"w": {"total": "sum"}}}),
        ],
    ),
    "the state renamed there and back": (
        FIRST,
        [
            (v(Amount), {}),
            (v(Amount, "w"), {"rename_states": {"v": "w"}}),
            (v(Amount), {"rename_states": {"w": "v"}}),
        ],
    ),
    "renamed, then dropped": (
        FIRST,
        [(v(Amount), {}), (v(Amount, "w"), {"rename_states": {"v": "w"}}), (v(int, "n"), {"drop_states": ["w"]})],
    ),
    "dropped, then another of its name": (
        FIRST,
        [(v(Amount), {}), (v(int, "n"), {"drop_states": ["v"]}), (v(int), {"drop_states": ["n"]})],
    ),
    "kept, then declared": (FIRST, [(v(Amount), {}), (v(int, "n"), {"keep_states": ["v"]})]),
    "time to live on, on": (5, [(v(int), {}), (v(int, ttl=TTL), {}), (v(int, ttl=TTL), {})]),
    "time to live on, off, on": (5, [(v(int), {}), (v(int, ttl=TTL), {}), (v(int), {}), (v(int, ttl=TTL), {})]),
}


def backend_of(descriptor: StateDescriptor, now: int) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4)
    backend.ttl_clock.processing_time = now
    backend.get_partitioned_state(descriptor)
    return backend


def opened(data: bytes) -> StateFileReader:
    return StateFileReader.of_bytes(data)


def base_of(backend: HeapKeyedStateBackend) -> StateFileReader:
    with backend.snapshot() as snapshot:
        return opened(b"".join(BaseWriter(backend, snapshot)))


def content_of(backend: HeapKeyedStateBackend) -> dict[Any, Any]:
    return {(n, key): content for n, state in backend.registered_states.items() for key, _, content in state.table}


def first_files(descriptor: StateDescriptor, value: Any) -> list[FileSlice]:
    backend = backend_of(descriptor, 0)
    for key in ("a", "b", "c"):
        backend.set_current_key(key)
        backend.get_partitioned_state(descriptor).update(value)
    base = base_of(backend)
    with backend.snapshot() as snapshot:
        backend.set_current_key("b")
        backend.get_partitioned_state(descriptor).clear()
        return [FileSlice.whole(base), FileSlice.whole(opened(write_delta(backend, snapshot).data))]


@pytest.mark.reliability(25)
@pytest.mark.parametrize("name", CHAINS)
def test_as_if_a_base_had_been_written_each_time(name: str) -> None:
    """Catches: a value that depends on when bases happen to be written: a removed field that comes back under a
    new one of its name, a rename forgotten, a stamp of another time, dropped rows that are there again."""
    value, programs = CHAINS[name]
    parts = first_files(programs[0][0], value)
    rewritten = parts
    for start, (descriptor, options) in enumerate(programs[1:], 1):
        live = backend_of(descriptor, start * 1000)
        verdict = restore(parts, live, RestoreChoices(**options)).verdict
        other = backend_of(descriptor, start * 1000)
        restore(rewritten, other, RestoreChoices(**options))
        assert content_of(live) == content_of(other)
        parts = [FileSlice.whole(p.reader, e) for p, e in zip(parts, verdict.decisions, strict=True)]
        with live.snapshot() as snapshot:
            live.set_current_key("b")
            if descriptor.codec.type in LATER:
                live.get_partitioned_state(descriptor).update(LATER[descriptor.codec.type])
            parts.append(FileSlice.whole(opened(write_delta(live, snapshot).data)))
        recovered = backend_of(descriptor, start * 1000 + 1)
        restore(parts, recovered, RestoreChoices(keep_states=options.get("keep_states", ())))
        assert content_of(recovered) == content_of(live)
        rewritten = [FileSlice.whole(base_of(live))]


def test_what_is_remembered() -> None:
    """Catches: a removed field, or the time of a new time to live, that is not written down."""
    parts = first_files(v(Amount), FIRST)
    removed = restore(parts, backend_of(v(Bare), 0)).verdict.decisions
    assert removed == (FileDecisions(rename_fields={"v": {"amount": ""}}),) * 2
    stamped = restore(first_files(v(int), 5), backend_of(v(int, ttl=TTL), 123)).verdict.decisions
    assert stamped == (FileDecisions(stamps={"v": 123}),) * 2
    assert restore(parts, backend_of(v(Amount), 0)).verdict.decisions == (NO_DECISIONS,) * 2


@dataclasses.dataclass
class Reads:
    """How many reads go well from now on."""

    left: int = 1000


def failing(part: FileSlice, reads: Reads) -> FileSlice:
    """The same file from a storage that breaks down."""
    reader = part.reader

    def read_range(offset: int, length: int) -> bytes:
        if not reads.left:
            raise StorageError("the storage is away")
        reads.left -= 1
        return reader._read_range(offset, length)

    return FileSlice.whole(StateFileReader(read_range, reader.size, name=reader.name), part.decisions)


@pytest.mark.reliability(15)
@pytest.mark.parametrize("name", ["renamed twice", "removed, and another of its name", "time to live on, on"])
def test_a_migration_that_breaks_off_and_is_repeated(name: str) -> None:
    """Catches: a restore that, broken off after any read and repeated, at a later time, gives something else."""
    value, programs = CHAINS[name]
    parts = first_files(programs[0][0], value)
    for start, (descriptor, options) in enumerate(programs[1:], 1):
        live = backend_of(descriptor, start * 1000)
        verdict = restore(parts, live, RestoreChoices(**options)).verdict
        decided = [FileSlice.whole(p.reader, e) for p, e in zip(parts, verdict.decisions, strict=True)]
        broken_off = 0
        for number in range(100):
            reads = Reads()
            shaky = [failing(part, reads) for part in decided]
            reads.left = number
            backend = backend_of(descriptor, start * 1000 + number)
            try:
                restore(shaky, backend, RestoreChoices(**options))
            except StorageError:
                broken_off += 1
                if content_of(backend):
                    with raising(RestoreRefusedError, "holds state"):
                        restore(decided, backend, RestoreChoices(**options))
                again = backend_of(descriptor, start * 1000 + 99)
                restore(decided, again, RestoreChoices(**options))
                assert content_of(again) == content_of(live)
            else:
                assert content_of(backend) == content_of(live)
                break
        assert broken_off >= 3
        parts = decided
