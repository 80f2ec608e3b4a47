"""A state in columns to files and back: the same files as those of the state in objects, and one reads the other's."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.restore.load import restore
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from tests.effort import examples
from tests.heap.columns.test_column_state import TOTAL
from tests.heap.columns.test_column_table_model import Total, pairs, records

SCHEMA = KeySchema.from_python(str)

Steps = list[tuple[tuple[str, str], Total | None]]
steps = st.lists(st.tuples(pairs, st.one_of(st.none(), records)), max_size=25)


def make_backend(*, columns: bool) -> tuple[HeapKeyedStateBackend, Any]:
    """A backend with the state, in columns or not."""
    backend = HeapKeyedStateBackend(SCHEMA, max_parallelism=4)
    if columns:
        return backend, backend.get_column_state(TOTAL)
    backend.get_partitioned_state(TOTAL)
    return backend, backend.registered_kv_states["total"]


def do(backend: HeapKeyedStateBackend, table: Any, todo: Steps) -> None:
    """Put and remove."""
    for (key, namespace), record in todo:
        backend.set_current_key(key)
        if record is None:
            table.remove(namespace)
        else:
            table.put(namespace, record)


@settings(max_examples=examples(60), deadline=None)
@given(first=steps, second=steps)
@pytest.mark.parametrize("to_columns", [True, False])
def test_base_and_delta(first: Steps, second: Steps, to_columns: bool) -> None:
    """Catches: columns that are written as something else than objects are, or that restore to something else."""
    files: list[list[bytes]] = []
    contents = []
    for columns in (True, False):
        backend, table = make_backend(columns=columns)
        do(backend, table, first)
        with backend.snapshot() as snapshot:
            base = b"".join(BaseWriter(backend, snapshot))
            do(backend, table, second)
            delta = write_delta(backend, snapshot)
        files.append([base, delta.data])
        contents.append(sorted(table, key=repr))
    assert contents[0] == contents[1]
    assert files[0][0] == files[1][0]  # a delta of columns leaves out what was written and is the same
    for written in files:
        backend, table = make_backend(columns=to_columns)
        restore([StateFileReader.of_bytes(data, name=f"file {i}") for i, data in enumerate(written)], backend)
        assert sorted(table, key=repr) == contents[0]
        backend.check_invariants()
