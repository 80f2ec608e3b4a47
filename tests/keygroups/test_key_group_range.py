"""Key group ranges and their assignment to slots."""

from __future__ import annotations

import pickle
import random
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.errors import StateDeclarationError
from emberstate.keygroups import (
    MAX_PARALLELISM_CAP,
    KeyGroupRange,
    default_max_parallelism,
    range_for_slot,
    slot_for_key_group,
)
from tests.raising import raising

ranges = st.builds(KeyGroupRange.of, st.integers(0, 40), st.integers(0, 40))


@pytest.mark.parametrize(
    ("max_parallelism", "parallelism", "expected"),
    [
        (128, 3, [(0, 42), (43, 85), (86, 127)]),
        (10, 3, [(0, 3), (4, 6), (7, 9)]),
        (128, 1, [(0, 127)]),
        (3, 3, [(0, 0), (1, 1), (2, 2)]),
    ],
)
def test_ranges_are_flinks(max_parallelism: int, parallelism: int, expected: list[tuple[int, int]]) -> None:
    """Catches: a ceil or floor the wrong way round, which moves state between slots on restore."""
    found = [range_for_slot(max_parallelism, parallelism, slot) for slot in range(parallelism)]

    assert [KeyGroupRange(start, end) for start, end in expected] == found


@pytest.mark.parametrize(
    ("parallelism", "expected"), [(1, 128), (85, 128), (86, 256), (171, 256), (172, 512), (32768, 32768)]
)
def test_default_max_parallelism_is_flinks(parallelism: int, expected: int) -> None:
    """Catches: 1.5 * p in place of p + p // 2 (171 gives 512), and a missing clamp at either end."""
    assert expected == default_max_parallelism(parallelism)


def check_assignment(max_parallelism: int, parallelism: int) -> None:
    """Assert that the slots' ranges tile all groups and agree with slot_for_key_group."""
    next_group = 0
    for slot in range(parallelism):
        owned = range_for_slot(max_parallelism, parallelism, slot)
        assert next_group == owned.start
        assert owned
        assert slot == slot_for_key_group(max_parallelism, parallelism, owned.start)
        assert slot == slot_for_key_group(max_parallelism, parallelism, owned.end)
        next_group = owned.end + 1
    assert max_parallelism == next_group


def test_every_small_assignment_is_consistent() -> None:
    """Catches: a gap, an overlap, an empty slot, or a row routed to a slot that does not own its group."""
    for max_parallelism in range(1, 49):
        for parallelism in range(1, max_parallelism + 1):
            check_assignment(max_parallelism, parallelism)


def test_large_assignments_are_consistent() -> None:
    """Catches: the same where products are large, up to the cap."""
    rng = random.Random(5)
    samples = [(rng.randint(1, MAX_PARALLELISM_CAP), rng.randint(1, 400)) for _ in range(60)]
    for max_parallelism, parallelism in [*samples, (MAX_PARALLELISM_CAP, 4095), (32767, 128)]:
        check_assignment(max_parallelism, min(parallelism, max_parallelism))


@given(
    st.integers(1, MAX_PARALLELISM_CAP).flatmap(
        lambda m: st.tuples(st.just(m), st.integers(1, m), st.integers(0, m - 1))
    )
)
def test_a_group_is_in_the_range_of_its_slot(sample: tuple[int, int, int]) -> None:
    """Catches: disagreement of the two formulas for some m >= p."""
    max_parallelism, parallelism, group = sample
    slot = slot_for_key_group(max_parallelism, parallelism, group)

    assert group in range_for_slot(max_parallelism, parallelism, slot)


@pytest.mark.parametrize("slot", [-1, 3, 4, True, 1.0, None])
def test_a_slot_outside_is_refused(slot: int) -> None:
    """Catches: slot == parallelism accepted, which hands out groups past the end."""
    with raising(StateDeclarationError, slot=slot):
        range_for_slot(128, 3, slot)


@pytest.mark.parametrize("group", [-1, 128, True, 1.0])
def test_a_group_outside_has_no_slot(group: int) -> None:
    """Catches: group == max parallelism giving slot == parallelism."""
    with raising(StateDeclarationError, key_group=group):
        slot_for_key_group(128, 3, group)


@pytest.mark.parametrize("max_parallelism", [0, -1, 32769, 128.0, True, "128", None])
def test_a_bad_max_parallelism_is_refused(max_parallelism: int) -> None:
    """Catches: a max parallelism from a config file (a str, a float, past the cap) taken as it comes."""
    with raising(StateDeclarationError, option="max_parallelism", found=max_parallelism):
        range_for_slot(max_parallelism, 1, 0)


@pytest.mark.parametrize("parallelism", [0, -1, 129, 2.0, True])
def test_a_bad_parallelism_is_refused(parallelism: int) -> None:
    """Catches: slots that would own no group, and division by zero instead of a clear error."""
    with raising(StateDeclarationError, option="parallelism", found=parallelism):
        range_for_slot(128, parallelism, 0)


@pytest.mark.parametrize("parallelism", [0, 32769])
def test_default_max_parallelism_checks_its_argument(parallelism: int) -> None:
    """Catches: a default that is smaller than the parallelism it is for."""
    with pytest.raises(StateDeclarationError):
        default_max_parallelism(parallelism)


def test_positions_end_before_the_size() -> None:
    """Catches: Flink's off-by-one, where position == size is accepted."""
    owned = KeyGroupRange(5, 7)

    assert [5, 6, 7] == [owned.group_at(position) for position in range(3)] == list(owned)
    for position in (-1, 3, 4):
        with raising(StateDeclarationError, option="position", found=position):
            owned.group_at(position)
    with raising(StateDeclarationError, option="position", found=0):
        KeyGroupRange.EMPTY.group_at(0)


def test_the_empty_range() -> None:
    """Catches: several unequal empty ranges, or an empty range that holds group 0."""
    assert KeyGroupRange.EMPTY is KeyGroupRange.of(9, 3)
    assert not KeyGroupRange.EMPTY
    assert list(KeyGroupRange.EMPTY) == []
    assert 0 not in KeyGroupRange.EMPTY
    assert -1 not in KeyGroupRange.EMPTY
    assert str(KeyGroupRange.EMPTY) == "[empty]"


@pytest.mark.parametrize(
    ("start", "end"), [(-1, 3), (3, 2), (0, 32768), (-2, -1), (0.0, 3), (False, True), (0, None)]
)
def test_a_senseless_range_is_refused(start: int, end: int) -> None:
    """Catches: a range built from swapped or foreign numbers that owns nothing or too much."""
    with pytest.raises(StateDeclarationError):
        KeyGroupRange(start, end)


def test_of_refuses_a_negative_start() -> None:
    """Catches: of(-5, -9) taken for the empty range."""
    with raising(StateDeclarationError, option="start", found=-5):
        KeyGroupRange.of(-5, -9)


@given(ranges, ranges)
def test_intersection_is_that_of_sets(one: KeyGroupRange, other: KeyGroupRange) -> None:
    """Catches: disjoint or empty ranges that intersect in a non-empty one; asymmetry."""
    both = one.intersection(other)

    assert set(one) & set(other) == set(both)
    assert both == other.intersection(one)
    assert len(both) == len(set(both))
    assert both or both is KeyGroupRange.EMPTY


@given(ranges, st.integers(-3, 45))
def test_check_and_in_agree_with_the_list(owned: KeyGroupRange, group: int) -> None:
    """Catches: an end that is treated as exclusive."""
    assert (group in list(owned)) == (group in owned)
    if group in owned:
        owned.check(group)
    else:
        with raising(StateDeclarationError, key_group=group):
            owned.check(group)


def test_membership_takes_any_integer_and_nothing_else() -> None:
    """Catches: groups from Arrow (numpy integers) silently "not in", and 3.5 silently "in"."""
    numpy = pytest.importorskip("numpy")

    assert numpy.int32(3) in KeyGroupRange(3, 4)
    with pytest.raises(TypeError):
        assert 3.5 in KeyGroupRange(3, 4)  # type: ignore[operator]


def test_a_range_is_a_value() -> None:
    """Catches: a range that can be changed under a table, or that is not itself after pickling."""
    owned = KeyGroupRange(3, 4)

    with pytest.raises(FrozenInstanceError):
        owned.start = 0  # type: ignore[misc]
    assert owned == pickle.loads(pickle.dumps(owned))
    assert len({owned, KeyGroupRange(3, 4)}) == 1
    assert str(owned) == "[3, 4]"
