"""The checksum of a whole state: kept by what changes, and the same however the state came about."""

from __future__ import annotations

import secrets
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.commit.state_checksum import StateChecksum
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.codec import pickle_codec
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import MapStateDescriptor
from tests.effort import examples

STATES = (
    MapStateDescriptor("words", str, set[str]),
    MapStateDescriptor("nested", int, dict[str, frozenset[str]]),
)
WORDS = [f"word {number}" for number in range(12)]


def backend() -> HeapKeyedStateBackend:
    made = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=1)
    for descriptor in STATES:
        made.get_partitioned_state(descriptor)
    made.set_current_key("broadcast")
    return made


def whole(of: HeapKeyedStateBackend) -> bytes:
    with of.snapshot() as now:
        return b"".join(BaseWriter(of, now))


def fresh(of: HeapKeyedStateBackend) -> dict[str, str]:
    """The totals of one that has seen nothing but the present state."""
    made = StateChecksum()
    made.apply(whole(of))
    return made.totals()


def restored(of: HeapKeyedStateBackend) -> HeapKeyedStateBackend:
    made = backend()
    restore([StateFileReader.of_bytes(whole(of))], made)
    made.set_current_key("broadcast")
    return made


steps = st.lists(
    st.tuples(
        st.sampled_from(["put", "add", "remove", "clear", "nest"]),
        st.sampled_from(WORDS),
        st.lists(st.sampled_from(WORDS), max_size=6),
    ),
    max_size=8,
)


def change(of: HeapKeyedStateBackend, steps: list[tuple[str, str, list[str]]]) -> None:
    words: Any = of.get_partitioned_state(STATES[0])
    nested: Any = of.get_partitioned_state(STATES[1])
    for what, key, some in steps:
        if what == "put":
            words[key] = set(some)
        elif what == "add" and key in words:
            words[key].update(some)  # in place
        elif what == "remove":
            words.remove(key)
        elif what == "clear":
            words.clear()
        elif what == "nest":
            nested[len(some)] = {word: frozenset(some) for word in (*some, key)}


@settings(max_examples=examples(60), deadline=None)
@given(transactions=st.lists(st.tuples(steps, st.booleans()), max_size=6))
def test_it_follows_every_change_commit_and_roll_back(transactions: list[tuple[Any, bool]]) -> None:
    """Catches: a checksum that loses what was removed, cleared, changed in place or rolled back; and one that depends
    on the order of sets, dicts or entries, which differs between a slot that is hot and one that was restored."""
    live, kept = backend(), StateChecksum()
    for changes, is_kept in transactions:
        with live.snapshot() as before:
            change(live, changes)
            kept.apply(write_delta(live, before).data)
            assert kept.totals() == fresh(live) == fresh(restored(live))
            if is_kept:
                kept.commit()
            else:
                live.roll_back(before)
                live.set_current_key("broadcast")
                kept.roll_back()
        assert kept.totals() == fresh(live)


def test_what_differs_shows() -> None:
    """Catches: entries that cancel each other out, or are told apart by value or key alone."""
    found = set()
    contents: list[dict[str, set[str]]] = [
        {"a": {"x"}}, {"a": {"y"}}, {"b": {"x"}}, {"a": {"x"}, "b": {"x"}}, {"a": {"x"}, "b": {"y"}}, {"a": set()},
    ]  # fmt: skip
    for content in contents:
        one = backend()
        one.get_partitioned_state(STATES[0]).put_all(content)
        found.add(fresh(one)["words"])
    assert len(found) == 6 and fresh(backend()) == {}


class Loose:
    """Something that only pickle takes."""

    def __init__(self, words: set[str]) -> None:
        self.words = words


def test_of_pickled_values_the_keys_count() -> None:
    """Catches: a false alarm over values whose bytes differ though they are equal; and keys that nobody compares."""
    pickled = MapStateDescriptor("loose", str, pickle_codec(Loose))

    def one(key: str, words: set[str]) -> dict[str, str]:
        made = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=1)
        made.get_partitioned_state(pickled)
        made.set_current_key("broadcast")
        made.get_partitioned_state(pickled).put(key, Loose(words))
        return fresh(made)

    assert one("a", {secrets.token_hex(4)}) == one("a", {secrets.token_hex(4)}) != one("b", set())
