"""What the tests of the RocksDB backend share: how to make one, and that none is left open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emberstate.keygroups import KeySchema
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from tests.state.support import BackendFactory

#: The least there is: the tests hold little, and are many.
LIMIT = 16 * 1024 * 1024


@pytest.fixture
def make_backend(tmp_path: Path) -> Iterator[BackendFactory]:
    """How to make a RocksDB backend for keys of a type; all are closed afterwards."""
    made: list[RocksDBKeyedStateBackend] = []

    def make(key_type: Any = str, **options: Any) -> RocksDBKeyedStateBackend:
        options = {"memory_limit": LIMIT, **options}
        made.append(RocksDBKeyedStateBackend(KeySchema.from_python(key_type), tmp_path / "local", **options))
        return made[-1]

    yield make
    for backend in made:
        backend.close()
