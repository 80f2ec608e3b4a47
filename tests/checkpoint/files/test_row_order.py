"""The order of rows is Arrow's, by the same columns."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import given
from hypothesis import strategies as st

from emberstate.checkpoint.files.row_order import sorted_order

KEYS = st.binary(max_size=3) | st.sampled_from(
    [b"", b"\0", b"\0\0", b"shared-prefix", b"shared-prefix\0", b"shared-prez"]
)
ROWS = st.tuples(
    st.integers(0, 3) | st.integers(0, 65535),
    st.integers(0, 2) | st.just(65535),
    KEYS | st.binary(min_size=6, max_size=12).map(lambda end: b"user-" + end),
    st.sampled_from([b"", b"a", b"aa"]),
    st.integers(0, 2) | st.just(2**32 - 1),
    st.none() | KEYS,
)
NAMES = ["key_group", "state", "key", "namespace", "step", "user_key"]
TYPES = [pa.uint16(), pa.uint16(), pa.large_binary(), pa.large_binary(), pa.uint32(), pa.large_binary()]


@given(st.lists(ROWS, max_size=60))
def test_order(rows: list[tuple[int, int, bytes, bytes, int, bytes | None]]) -> None:
    """Catches: rows of a file out of order, which no reader takes; equal state that has other files."""
    columns = list(zip(*rows, strict=True)) or [()] * len(NAMES)
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TYPES, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, NAMES)
    expected = pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in NAMES])
    assert batch.take(sorted_order(batch)).equals(batch.take(expected))
    assert sorted(sorted_order(batch).to_pylist()) == list(range(len(rows)))


def test_many_rows() -> None:
    """Catches: a merge that loses rows once there are more than one piece is sorted at a time."""
    keys = [(i * 7919 % 10007).to_bytes(4, "big") + bytes(i % 3) for i in range(10_000)]
    groups = [i % 5 for i in range(10_000)]
    constant = pa.array([b""] * 10_000, pa.large_binary())
    zeros = [0] * 10_000
    columns = [pa.array(groups, TYPES[0]), pa.array(zeros, TYPES[1]), pa.array(keys, TYPES[2]), constant,
               pa.array(zeros, TYPES[4]), pa.nulls(10_000, TYPES[5])]  # fmt: skip
    order = sorted_order(pa.RecordBatch.from_arrays(columns, NAMES)).to_pylist()
    assert order == sorted(range(10_000), key=lambda row: (groups[row], keys[row], row))
