"""Pictures of state maps: what `draw()` shows is the live structure, and drawing changes nothing.

Keys are small integers and the namespace is the empty string: their hashes are the same in every process.
"""

from __future__ import annotations

from typing import Any

import pytest

from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.heap import IMMUTABLE, CopyOnWriteStateMap, NestedStateMap, StateMap
from emberstate.heap.map.drawing import MAX_BUCKETS, MAX_ENTRIES
from emberstate.heap.states.map_value import MapKind
from tests.raising import raising


def picture(states: StateMap) -> list[str]:
    return states.draw().splitlines()


def filled(capacity: int, *keys: int) -> CopyOnWriteStateMap:
    states = CopyOnWriteStateMap(IMMUTABLE, capacity=capacity)
    for key in keys:
        states.put(key, "", key * 10)
    return states


def test_an_empty_map() -> None:
    """Catches: a table whose page was not made yet and that cannot be drawn."""
    assert picture(filled(4)) == [
        "entries 0, version 1, required 0, live snapshots []",
        "primary table, 4 buckets, threshold 3",
        *(f"   {bucket} | -" for bucket in range(4)),
    ]


def test_growth_in_steps() -> None:
    """Catches: a picture that shows entries twice while the map grows, or not in the table that has them."""
    states = filled(8, *range(8))
    begun = picture(states)
    assert begun[1] == "primary table, 8 buckets, rehash index 0"
    assert begun[2:10] == [
        "   0 | 6 ''=60 v1/1 -> 0 ''=0 v1/1",
        "   1 | -",
        "   2 | -",
        "   3 | -",
        "   4 | 7 ''=70 v1/1",
        "   5 | 5 ''=50 v1/1 -> 4 ''=40 v1/1",
        "   6 | 2 ''=20 v1/1",
        "   7 | 3 ''=30 v1/1 -> 1 ''=10 v1/1",
    ]
    assert begun[10:] == ["rehash table, 16 buckets", *(f"{bucket:>4} | not yet" for bucket in range(16))]

    states.get(0, "")

    half = picture(states)
    assert half[1] == "primary table, 8 buckets, rehash index 6"
    assert half[2:8] == [f"   {bucket} | moved" for bucket in range(6)]
    assert half[8:10] == begun[8:10]
    assert half[11 : 11 + 16] == [
        "   0 | 0 ''=0 v1/1",
        "   1 | -",
        "   2 | -",
        "   3 | -",
        "   4 | 7 ''=70 v1/1",
        "   5 | 4 ''=40 v1/1",
        "   6 | not yet",
        "   7 | not yet",
        "   8 | 6 ''=60 v1/1",
        "   9 | -",
        "  10 | -",
        "  11 | -",
        "  12 | -",
        "  13 | 5 ''=50 v1/1",
        "  14 | not yet",
        "  15 | not yet",
    ]


def test_a_former_table_is_drawn_while_a_snapshot_sees_it() -> None:
    """Catches: a picture that loses what a snapshot reads once the map has outgrown its table."""
    states = filled(4, 1, 2, 3, 4, 5)
    with states.snapshot():
        states.put(1, "", 11)
        drawn = picture(states)
        assert drawn[0] == "entries 5, version 2, required 2, live snapshots [2]"
        assert drawn[9] == "   7 | 1 ''=11 v2/2 -> 3 ''=30 v2/1"
        assert drawn[10:] == [
            "former table, 4 buckets",
            "   0 | -",
            "   1 | 5 ''=50 v1/1 -> 4 ''=40 v1/1",
            "   2 | 2 ''=20 v1/1",
            "   3 | 3 ''=30 v1/1 -> 1 ''=10 v1/1",
            "snapshot 2: entries 5, heads kept 0",
        ]

    assert "former" not in states.draw()


def test_each_snapshot_keeps_what_was_changed_after_it() -> None:
    """Catches: heads drawn under another snapshot than the one that keeps them."""
    states = filled(4, 1, 2)
    with states.snapshot(), states.snapshot():
        states.put(4, "", 40)
        drawn = picture(states)
        assert drawn[0].endswith("required 3, live snapshots [2, 3]")
        assert drawn[6:] == ["snapshot 3: entries 2, heads kept 1", "   1 | - (primary)"]


def test_drawing_changes_nothing() -> None:
    """Catches: a picture that does a step of rehashing, or copies."""
    states = filled(8, *range(8))
    with states.snapshot():
        before = states.statistics()
        assert states.draw() == states.draw()
        assert states.statistics() == before
        states.check_invariants()


def test_a_large_map_is_refused() -> None:
    """Catches: a picture of a million lines."""
    states = filled(MAX_BUCKETS)
    states.draw()
    with raising(StateDeclarationError, option="draw", found=2 * MAX_BUCKETS):
        filled(2 * MAX_BUCKETS).draw()
    growing = filled(MAX_BUCKETS, *range(MAX_BUCKETS // 4 * 3 + 2))
    assert growing.is_rehashing
    with raising(StateDeclarationError, "buckets", option="draw"):
        growing.draw()


def test_a_nested_map() -> None:
    """Catches: a picture of dicts that misses a namespace, or a large one that is drawn."""
    states = NestedStateMap(IMMUTABLE)
    for key in range(MAX_ENTRIES - 1):
        states.put(key, "odd" if key % 2 else "even", key)
    states.put("k", "other", None)
    drawn = picture(states)
    assert drawn[0] == f"entries {MAX_ENTRIES}, version 1, required 0, live snapshots []"
    assert drawn[2].startswith("namespace 'odd' | 1=1, 3=3, ")
    assert drawn[3:] == ["namespace 'other' | 'k'=None"]

    states.put("one more", "", 0)
    with raising(StateDeclarationError, option="draw", found=MAX_ENTRIES + 1):
        states.draw()


def test_long_and_nested_states_are_short() -> None:
    """Catches: a state drawn by an address, or over many lines."""
    states = CopyOnWriteStateMap(MapKind(IMMUTABLE), capacity=4)
    inner = CopyOnWriteStateMap(IMMUTABLE, states.registry)
    inner.put("a", "", 1)
    inner.put("b", "", 2)
    states.put(1, "", inner)
    states.put(2, "", tuple(range(100)))
    assert picture(states)[4:] == ["   2 | 2 ''=(0, 1, 2, 3, 4, 5, 6, 7… v1/1", "   3 | 1 ''=map of 2 v1/1"]


class Meddler:
    """A state whose repr writes to the map."""

    def __init__(self, states: StateMap) -> None:
        self.states = states

    def __repr__(self) -> str:
        self.states.put(99, "", 0)
        return "meddler"


@pytest.mark.parametrize("kind", [CopyOnWriteStateMap, NestedStateMap])
def test_a_repr_may_not_change_the_map(kind: Any) -> None:
    """Catches: chains that change while they are drawn."""
    states = kind(IMMUTABLE)
    states.put(1, "", Meddler(states))
    with pytest.raises(LifecycleError):
        states.draw()
    assert len(states) == 1
