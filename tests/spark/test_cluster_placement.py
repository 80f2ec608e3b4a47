"""Slots and executors: who gets which, and who has to move."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from emberstate.spark.driver.placement import assign, preference

EXECUTORS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 8), min_size=1)
HISTORIES = st.lists(EXECUTORS, min_size=1, max_size=6)


@given(st.integers(1, 40), HISTORIES)
def test_fair_and_still(parallelism: int, history: list[dict[str, int]]) -> None:
    """Catches: a slot without a living executor, an unfair share, a slot that moves though nothing has changed."""
    placed: dict[int, str] = {}
    for cores in history:
        before, placed = placed, assign(parallelism, cores, placed)
        assert list(placed) == list(range(parallelism))
        counts = Counter(placed.values())
        assert counts.keys() <= cores.keys()
        for executor, count in cores.items():
            fair = parallelism * count / sum(cores.values())
            assert fair - 1 < counts[executor] < fair + 1
        assert assign(parallelism, cores, placed) == placed
        # Who leaves a living executor leaves one that had more than its share.
        for slot, executor in before.items():
            if executor in cores and placed[slot] != executor:
                assert counts[executor] < Counter(before.values())[executor]


@given(st.integers(1, 40), st.sets(st.sampled_from("abcdef"), min_size=2))
def test_the_slots_of_one_that_is_lost(parallelism: int, executors: set[str]) -> None:
    """Catches: a lost executor that makes slots move which were not on it."""
    cores = dict.fromkeys(sorted(executors), 1)
    before = assign(parallelism, cores, {})
    lost = cores.popitem()[0]
    after = assign(parallelism, cores, before)
    assert all(after[slot] == executor for slot, executor in before.items() if executor != lost)


@given(st.integers(1, 40), st.sets(st.sampled_from("abcde"), min_size=1))
def test_one_that_comes(parallelism: int, executors: set[str]) -> None:
    """Catches: a new executor that gets no slots, or for which slots change places among the others."""
    cores = dict.fromkeys(sorted(executors), 1)
    before = assign(parallelism, cores, {})
    cores["z"] = 1
    after = assign(parallelism, cores, before)
    assert all(after[slot] in (executor, "z") for slot, executor in before.items())
    assert Counter(after.values())["z"] >= parallelism // len(cores)


def test_small_jobs_are_apart() -> None:
    """Catches: a hundred jobs of one slot that all choose the same executor."""
    executors = [str(number) for number in range(4)]
    chosen = Counter(assign(1, dict.fromkeys(preference(f"job {n}", executors), 1), {})[0] for n in range(100))
    assert chosen.keys() == set(executors)
    assert max(chosen.values()) < 50


def test_cores_count() -> None:
    """Catches: as many slots for one core as for three."""
    assert Counter(assign(8, {"small": 1, "large": 3}, {}).values()) == {"small": 2, "large": 6}
