"""`KeyIndex` against a dict: batches, namespaces, freed rows, growth."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from emberstate.errors import InvariantError
from emberstate.heap.columns.key_index import KeyIndex
from tests.heap.conftest import COMPILED


def column(keys: list[bytes]) -> tuple[bytes, np.ndarray]:
    """Keys as a large binary column."""
    offsets = np.zeros(len(keys) + 1, np.int64)
    np.cumsum([len(key) for key in keys], out=offsets[1:])
    return b"".join(keys), offsets


def drawn(chance: random.Random, space: int) -> bytes:
    """A key: empty, short, of eight bytes and of more, some with a long common beginning."""
    number = chance.randrange(space)
    return [b"", b"k%d" % number, b"%08d" % number, b"x" * 30 + b"%d" % number][number % 4]


@pytest.mark.parametrize("seed", range(6))
def test_batches_like_a_dict(seed: int) -> None:
    """Catches: a key that a tombstone, a growth, a compacted arena or a shared hash hides or doubles."""
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    index = KeyIndex()
    model: dict[tuple[bytes, int], int] = {}
    for step in range(60 if COMPILED else 25):
        space = chance.choice([5, 60, 4000])
        keys = [drawn(chance, space) for _ in range(chance.choice([0, 1, 7, 400]))]
        spaces = np.array([chance.randrange(3) for _ in keys], np.int32)
        pairs = list(zip(keys, spaces.tolist(), strict=True))
        expected = [model.get(pair, -1) for pair in pairs]
        assert expected == index.find_rows(*column(keys), spaces).tolist()
        rows = index.rows_of(*column(keys), spaces).tolist()
        for pair, row in zip(pairs, rows, strict=True):
            assert model.setdefault(pair, row) == row
        assert len(set(model.values())) == len(model)
        if step % 3 == 2:
            gone = [pair for pair in model if chance.random() < 0.6]
            index.free(np.array([model.pop(pair) for pair in gone], np.int64))
        if step % 10 == 9:
            index.check_invariants()
    assert index.entries == len(model)
    used = np.array(sorted(model.values()), np.int64)
    data, offsets = index.keys(used)
    inverse = {row: key for (key, _), row in model.items()}
    ends = offsets.tolist()
    found = [data.tobytes()[start:end] for start, end in itertools.pairwise(ends)]
    assert found == [inverse[row] for row in used.tolist()]


def test_garbage_does_not_pile_up() -> None:
    """Catches: an arena or a hash table that grows with every key that ever was."""
    index = KeyIndex()
    for number in range(20 if not COMPILED else 200):
        keys = [b"%d-%d" % (number, i) + b"x" * 100 for i in range(50)]
        rows = index.rows_of(*column(keys), np.zeros(50, np.int32))
        index.free(rows)
    index.check_invariants()
    assert index.rows == 50
    assert index.arena_used <= 65_536 + 2 * 50 * 110


def test_invariants_see_a_lost_key() -> None:
    """Catches: a check that could pass by doing nothing."""
    index = KeyIndex()
    index.rows_of(*column([b"a", b"b"]), np.zeros(2, np.int32))
    index.free_rows.append(1)
    with pytest.raises(InvariantError):
        index.check_invariants()
