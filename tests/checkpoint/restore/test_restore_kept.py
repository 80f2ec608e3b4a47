"""States that are kept without being declared: carried along byte for byte, and there again when declared."""

from __future__ import annotations

import dataclasses
import os
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.codec import OpaqueCodec, TypeSchema, opaque_codec, opaque_timer_codec, pickle_codec
from emberstate.errors import CodecError, RestoreRefusedError, StateDeclarationError, StateTypeError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.descriptors import ValueStateDescriptor
from tests.checkpoint.files.state_file_world import (
    DESCRIPTORS,
    MAX_PARALLELISM,
    NAMESPACE_TYPES,
    STEPS,
    content_of,
    do,
    make_backend,
)
from tests.effort import examples
from tests.raising import raising

ALL = [*DESCRIPTORS, "timers/windows"]


class Window(NamedTuple):
    """A namespace that only the old program knows."""

    start: int
    end: int


def base_of(backend: HeapKeyedStateBackend) -> StateFileReader:
    with backend.snapshot() as snapshot:
        return StateFileReader.of_bytes(b"".join(BaseWriter(backend, snapshot)))


def rows_of(reader: StateFileReader) -> list[Any]:
    """All rows, with the name of the state in place of its position."""
    names = [state.address for state in reader.meta.states]
    rows = []
    for _, batch in reader.batches():
        for row in batch.to_pylist():
            rows.append((*row.values(), names[row["state"]]))
    return rows


def undeclared(groups: KeyGroupRange | None = None) -> HeapKeyedStateBackend:
    """A program that has none of the states left."""
    return HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=MAX_PARALLELISM, key_group_range=groups)


def windows(backend: HeapKeyedStateBackend) -> Any:
    return backend.get_timer_queue("windows", namespace_type=Window)


def filled(steps: list[Any]) -> HeapKeyedStateBackend:
    backend = make_backend()
    queue = windows(backend)
    for step in steps:
        do(backend, step)
        queue.register(len(step[1]), "close", Window(1, 2))
    return backend


@pytest.mark.reliability(25)
@settings(max_examples=examples(40))
@given(st.lists(STEPS, max_size=40, min_size=1))
def test_everything_kept_and_declared_again(steps: list[Any]) -> None:
    """Catches: a kind of state, stamp, namespace or timer that changes on its way through a program that does not
    know it."""
    steps = [step for step in steps if step[0] != "time passes"]
    backend = filled(steps)
    before = base_of(backend)
    keeper = undeclared()
    restore([before], keeper, RestoreChoices(keep_states=ALL))
    keeper.check_invariants()
    after = base_of(keeper)
    assert rows_of(after) == rows_of(before)
    assert after.meta.states == before.meta.states
    assert [dataclasses.asdict(s) for s in after.meta.states] == [dataclasses.asdict(s) for s in before.meta.states]
    back = make_backend()
    windows(back)
    restore([after], back)
    back.check_invariants()
    assert content_of(back) == content_of(backend)
    assert windows(back).peek() == windows(backend).peek()


def test_kept_states_go_through_deltas_and_slots() -> None:
    """Catches: a kept state that a base has and a chain of deltas, or a rescaled slot, has not."""
    backend = filled([("total", f"key-{i}", "", i) for i in range(50)])
    base = base_of(backend)
    with backend.snapshot() as snapshot:
        for i in range(50):
            do(backend, ("seen", f"key-{i}", "", "u", i))
            do(backend, ("clear", f"key-{i}", "", "total"))
        delta = StateFileReader.of_bytes(write_delta(backend, snapshot).data)
    files = []
    for groups in (KeyGroupRange(0, 4), KeyGroupRange(5, 15)):
        slot = undeclared(groups)
        restore([FileSlice(base, groups), FileSlice(delta, groups)], slot, RestoreChoices(keep_states=ALL))
        with slot.snapshot() as snapshot:
            files += [base_of(slot), StateFileReader.of_bytes(write_delta(slot, snapshot).data)]
    back = make_backend()
    windows(back)
    restore(files, back)
    assert content_of(back) == content_of(backend)


def test_nobody_gets_a_handle_on_kept_state() -> None:
    """Catches: a function that asks for the state after the restore and is handed bytes for values."""
    keeper = undeclared()
    restore([base_of(filled([("total", "a", "", 1)]))], keeper, RestoreChoices(keep_states=ALL))
    for name, descriptor in DESCRIPTORS.items():
        with raising(StateDeclarationError, state=name):
            keeper.get_partitioned_state(
                descriptor, (0, 1) if name == "window" else "", namespace_type=NAMESPACE_TYPES.get(name, str)
            )
    with raising(StateDeclarationError, state="windows"):
        windows(keeper)
    with raising(StateDeclarationError, state="total"):
        keeper.keep_state(DESCRIPTORS["total"], opaque_codec(TypeSchema("str")))
    with raising(StateDeclarationError, state="windows"):
        keeper.keep_timer_queue("windows", opaque_codec(TypeSchema("str")))


class Exploit:
    """Pickled, it is a command to run."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.reliability(26)
def test_a_kept_pickle_is_never_run(tmp_path: Path) -> None:
    """Catches: keeping that decodes."""
    marker = tmp_path / "executed"
    backend = undeclared()
    state = backend.get_partitioned_state(ValueStateDescriptor("v", pickle_codec(bytes)))
    backend.set_current_key("a")
    state.update(pickle.dumps(Exploit(marker)))
    keeper = undeclared()
    restore([base_of(backend)], keeper, RestoreChoices(keep_states=["v"]))
    (kept,) = base_of(keeper).meta.states
    assert (kept.codec, kept.type) == ("pickle", TypeSchema("pickle"))
    assert not marker.exists()


@dataclasses.dataclass
class One:
    a: int


@dataclasses.dataclass
class Two:
    b: int = 0


@pytest.mark.parametrize("renames", [{}, {"v": {"a": "b"}}], ids=["another type", "a renamed field"])
def test_state_of_two_schemas_cannot_be_kept(renames: dict[str, dict[str, str]]) -> None:
    """Catches: bytes of an older schema that are said to be of the newer one."""
    first = undeclared()
    first.set_current_key("a")
    first.get_partitioned_state(ValueStateDescriptor("v", One)).update(One(1))
    base = base_of(first)
    second = undeclared()
    state = second.get_partitioned_state(ValueStateDescriptor("v", Two))
    verdict = restore([base], second, RestoreChoices(rename_fields=renames)).verdict
    with second.snapshot() as snapshot:
        second.set_current_key("b")
        state.update(Two(2))
        delta = StateFileReader.of_bytes(write_delta(second, snapshot).data)
    part = FileSlice.whole(base, verdict.decisions[0])
    for later in ([], [delta]):
        with raising(RestoreRefusedError, "drop_states", state="v"):
            restore([part, *later], undeclared(), RestoreChoices(keep_states=["v"]))
    restore([base], undeclared(), RestoreChoices(keep_states=["v"]))
    with raising(RestoreRefusedError, "differently", state="v"):
        restore([base, delta], undeclared(), RestoreChoices(keep_states=["v"]))


@pytest.mark.reliability(27)
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93",
        b"\x93\x01\xa1n",
        b"\x92\x01\xa1n",
        b"\x93\xcf\xff\xff\xff\xff\xff\xff\xff\xff\xa1n\xa0",
        b"\x93\x01\xa1n\xa0\xa0",
        b"\x93\x01\xa2\xff\xff\xa0",
        b"\x93\xc3\xa1n\xa0",
        b"\x93\x01\xa1n" + b"\x91" * 5000,
    ],
)
def test_bytes_that_are_no_timer(data: bytes) -> None:
    """Catches: another exception than ours out of a kept queue."""
    codec = opaque_timer_codec(TypeSchema("tuple", (TypeSchema("int"), TypeSchema("str"), TypeSchema("str"))))
    with pytest.raises(CodecError):
        codec.decode(data)


def test_opaque_codecs() -> None:
    """Catches: a value that is no bytes taken as its own encoding; a codec that does not travel to a worker."""
    codec = opaque_codec(TypeSchema("list", (TypeSchema("int"),)), "pickle")
    timers = opaque_timer_codec(TypeSchema("tuple", (TypeSchema("int"), TypeSchema("str"), TypeSchema("bool"))))
    for wrong in (1, "a", None):
        with pytest.raises(StateTypeError):
            codec.check(wrong)
        with pytest.raises(StateTypeError):
            timers.check_deep(wrong)
    for one in (codec, timers):
        copy = pickle.loads(pickle.dumps(one))
        assert isinstance(copy, OpaqueCodec) and type(copy) is type(one)
        assert (copy.schema, copy.name) == (one.schema, one.name)
    assert timers.decode(timers.encode((1, "n", b"\xc3"))) == (1, "n", b"\xc3")
