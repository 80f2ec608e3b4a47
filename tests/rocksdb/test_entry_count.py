"""How many entries a RocksDB backend has: known without counting, after changes were listed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import emberstate as es
from emberstate.keygroups import KeySchema
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from emberstate.state.descriptors import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from emberstate.testing import Harness
from tests.effort import examples

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "put", "put", "remove", "clear", "commit", "commit", "roll back"]),
        st.integers(0, 2),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(steps=STEPS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
def test_the_count_follows_what_is_listed(tmp_path: Path, steps: list[Any]) -> None:
    """Catches: entries counted twice, or kept in the count, when lists and maps grow, empty, or are rolled back."""
    backend = RocksDBKeyedStateBackend(KeySchema.from_python(int), tmp_path)
    value = backend.get_partitioned_state(ValueStateDescriptor("v", int))
    elements = backend.get_partitioned_state(ListStateDescriptor("l", int))
    pairs = backend.get_partitioned_state(MapStateDescriptor("m", int, int))
    snapshot = backend.snapshot()
    try:
        for step, state, key in steps:
            backend.set_current_key(key)
            if step == "put":
                (value.update, elements.add, lambda n: pairs.put(len(pairs) % 2, n))[state](key)
            elif step == "remove":
                pairs.remove(0)
            elif step == "clear":
                (value, elements, pairs)[state].clear()
            elif step == "commit":
                backend.changes(snapshot)
                assert backend._known_entries() == backend.number_of_entries() == backend.statistics().entries
                after = backend.snapshot()
                snapshot.release()
                snapshot = after
            else:
                backend.roll_back(snapshot)
                assert backend._known_entries() == backend.number_of_entries()
            backend.check_invariants()
        assert backend.statistics().entries == backend.number_of_entries()
    finally:
        snapshot.release()
        backend.close()


class Keeping(es.KeyedProcessFunction):
    """Three states."""

    seen = es.value_state(int, default=0)
    elements = es.list_state(int, ttl="1 hour")
    pairs = es.map_state(str, int)

    def process_element(self, row: Any, ctx: Any) -> None:
        self.seen.update(self.seen.value() + 1)
        self.elements.add(1)
        self.pairs[row.k] = 1


def test_a_job_counts_once_per_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a batch that walks over all state to say how large it is, or a number that is always 0."""
    walks: list[int] = []
    walk = RocksDBKeyedStateBackend.number_of_entries

    def watched(backend: RocksDBKeyedStateBackend) -> int:
        walks.append(1)
        return walk(backend)

    monkeypatch.setattr(RocksDBKeyedStateBackend, "number_of_entries", watched)
    backend = es.RocksDBStateBackend(tmp_path)
    with Harness(Keeping(), schema="k string", key="k", state_backend=backend) as harness:
        for number in range(4):
            harness.process(("a",), (f"b{number}",))
            (operator,) = harness.statistics().operators
            assert operator.backend.entries == 3 * (number + 2)
        before = len(walks)
        harness.crash()
        harness.process(("c",))
        (operator,) = harness.statistics().operators
        assert operator.backend.entries == 18
        assert (before, len(walks)) == (1, 2)
