"""A small run of `rocksdb_memory`; the long one is recorded in benchmarks/results."""

from __future__ import annotations

import pytest

from tests.stress.rocksdb_memory import MIB, prove


@pytest.mark.long
def test_memory_stays_within_its_limit() -> None:
    """Catches: a cache, buffer or log that grows with the state or with a transaction instead of stopping."""
    result = prove(limit=32 * MIB, state_bytes=160 * MIB, seed=1)

    assert result["state_to_limit"] >= 5
    assert result["rocksdb"]["rolled_back_bytes"] >= 3 * 32 * MIB
    assert result["rocksdb_within"], result
    assert result["heap_beyond"], result
