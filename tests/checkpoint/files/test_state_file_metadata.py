"""The metadata of state files: versions, unknown fields, and everything that makes no sense in it."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.codec import codec_for
from emberstate.errors import CorruptionError, RestoreRefusedError, StateDeclarationError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.declarations import MAX_STATES
from emberstate.state.descriptors import ValueStateDescriptor
from tests.checkpoint.files.state_file_forgery import STR, declared, file_of, metadata, opened, state
from tests.raising import raising


def test_the_file_put_together_by_hand_is_fine() -> None:
    """Catches: hostile files below that are refused for a mistake in their making."""
    assert restore([opened(file_of())], declared()).files == 1


@pytest.mark.reliability(24)
def test_a_later_version_is_refused_with_both_versions() -> None:
    """Catches: a future file read by today's rules, or called corrupt."""
    with raising(RestoreRefusedError, r"9\.9\.9", path="hostile", expected=1, found=2):
        opened(file_of(metadata(version=2, library="9.9.9", states="changed beyond recognition")))


@pytest.mark.reliability(24)
def test_unknown_fields_are_ignored_and_unknown_requirements_refused() -> None:
    """Catches: a reader that stops at every addition, or reads what it must understand and does not."""
    extended = metadata(compression_hint="none", states=[state(comment="new")])
    assert restore([opened(file_of(extended))], declared()).files == 1
    assert opened(file_of(raw_index=b'{"batches":[],"later":1}')).rows == 0
    with raising(RestoreRefusedError, r"0\.1\.0", path="hostile", found=("rows encrypted",)):
        opened(file_of(metadata(requires=["rows encrypted"])))


NONSENSE: dict[str, dict[str, Any]] = {
    "another format": {"format": "something else"},
    "no version": {"version": None},
    "a version that is no number": {"version": 1.0},
    "version zero": {"version": 0},
    "requires no list": {"requires": "x"},
    "another kind": {"kind": "epsilon"},
    "no key columns": {"key_schema": []},
    "a key that cannot be": {"key_schema": ["map<int,int>"]},
    "a key type misspelt": {"key_schema": ["String"]},
    "too many key groups": {"max_parallelism": 10**9},
    "no key groups": {"max_parallelism": 0},
    "a huge number": {"max_parallelism": 2**63},
    "key groups beyond the last": {"key_groups": [0, 4]},
    "key groups backwards": {"key_groups": [3, 0]},
    "key groups below zero": {"key_groups": [-1, 3]},
    "key groups that are text": {"key_groups": ["0", "3"]},
    "no states": {"states": None},
    "a state that is no object": {"states": [1]},
    "a state without a name": {"states": [state(None)]},
    "a NUL in a name": {"states": [state("a\0b")]},
    "a surrogate in a name": {"states": [state("\ud800")]},
    "a path as a name": {"states": [state("../../etc/passwd")]},
    "a very long name": {"states": [state("x" * 10_000_000)]},
    "a state twice": {"states": [state("a"), state("a")]},
    "states out of order": {"states": [state("b"), state("a")]},
    "an unknown kind of state": {"states": [state(kind="graph")]},
    "an unknown codec": {"states": [state(codec="eval")]},
    "an unknown type": {"states": [state(type={"kind": "spell"})]},
    "a type that is none": {"states": [state(type=None)]},
    "a namespace without type": {"states": [state(namespace=7)]},
    "a map without user keys": {"states": [state(kind="map")]},
    "a time to live of nothing": {"states": [state(ttl={"micros": 0, "time": "event"})]},
    "a time to live of no time": {"states": [state(ttl={"micros": 1, "time": "tea"})]},
    "a million digits": {"merged": 10**4000},
    "a library that is no text": {"library": {"a": 1}},
}


@pytest.mark.reliability(27)
@pytest.mark.parametrize("name", NONSENSE)
def test_metadata_that_makes_no_sense(name: str) -> None:
    """Catches: nonsense believed, or another exception than ours, or a message as long as the nonsense."""
    with pytest.raises(CorruptionError) as caught:
        opened(file_of(metadata(**NONSENSE[name])))
    assert len(str(caught.value)) < 1000
    str(caught.value).encode()


@pytest.mark.reliability(27)
@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b"[" * 1_000_000,
        b'{"a":' * 1_000_000,
        b'{"format": "emberstate state file", "version": 1, "requires": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"version": 1' + b"0" * 100_000 + b"}",
    ],
    ids=range(9),
)
def test_json_that_is_none_or_nested_deeply(text: bytes) -> None:
    """Catches: RecursionError, UnicodeDecodeError or ValueError out of the JSON parser."""
    with pytest.raises(CorruptionError):
        opened(file_of(raw_meta=text))
    with pytest.raises(CorruptionError):
        opened(file_of(raw_index=text))


@pytest.mark.reliability(27)
def test_a_type_nested_deeply() -> None:
    """Catches: recursion over a stored type."""
    nested: Any = STR
    for _ in range(300):
        nested = {"kind": "list", "items": [nested]}
    with raising(CorruptionError, path="hostile", state="value"):
        opened(file_of(metadata(states=[state(type=nested)])))


@pytest.mark.long
def test_what_is_written_is_read_up_to_the_last_state() -> None:
    """Catches: a writer that goes on beyond what its reader takes."""
    backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=1)
    codec = codec_for(int)
    handles = [
        backend.get_partitioned_state(ValueStateDescriptor(f"s{number:05d}", codec)) for number in range(MAX_STATES)
    ]
    with backend.snapshot() as before:
        backend.set_current_key("ann")
        handles[-1].update(7)
        data = write_delta(backend, before).data
    read = StateFileReader.of_bytes(data)
    assert (len(read.meta.states), read.rows) == (MAX_STATES, 1)

    one_more = dataclasses.replace(read.meta.states[0], name="t")
    with raising(StateDeclarationError, expected=MAX_STATES, found=MAX_STATES + 1):
        dataclasses.replace(read.meta, states=(*read.meta.states, one_more)).to_json()


@pytest.mark.reliability(27)
def test_a_hundred_thousand_states_are_refused_quickly() -> None:
    """Catches: time and memory that follow what a file declares."""
    data = file_of(metadata(states=[state(f"s{i:06d}") for i in range(100_000)]))
    started = time.thread_time()  # what others do on the machine does not count
    with raising(CorruptionError, path="hostile", option="states", expected=MAX_STATES, found=100_000):
        opened(data, footer_bytes=2**26)
    assert time.thread_time() - started < 20
    with raising(CorruptionError, path="hostile", option="footer_bytes", expected=1000):
        opened(data, footer_bytes=1000)
