"""The whole RocksDB backend against the same plain dicts as the heap's: every kind of state, expiry, timers, and
points in time that overlap and are gone back to in any order.

The one difference: what a caller holds reaches nothing.
"""

from __future__ import annotations

import tempfile
from typing import Any

from hypothesis import settings

from emberstate.keygroups import KeySchema
from emberstate.rocksdb.backend import RocksDBKeyedStateBackend
from tests.effort import examples
from tests.heap.test_backend_model import BRANCHES, BackendMachine, only
from tests.rocksdb.conftest import LIMIT


class RocksDBMachine(BackendMachine):
    """A RocksDB backend and its model, driven alike."""

    def make_backend(self) -> Any:
        """A backend with four key groups."""
        self.directory = tempfile.TemporaryDirectory()
        schema = KeySchema.from_python(str)
        return RocksDBKeyedStateBackend(schema, self.directory.name, max_parallelism=4, memory_limit=LIMIT)

    def attach(self, value: Any, *path: Any) -> None:
        """What a caller holds is its own."""
        self.kept.append((path, value))

    def teardown(self) -> None:
        """Whatever happened, all that is still live is right; and no file is left behind."""
        super().teardown()
        for taken in self.taken:
            taken.snapshot.release()
        self.backend.close()
        assert not self.backend.local_path.exists()
        self.directory.cleanup()


class SpillingMachine(RocksDBMachine):
    """The same with a log of touched keys that is on disk after every few keys."""

    def make_backend(self) -> Any:
        """A backend whose log has next to no memory."""
        backend = super().make_backend()
        backend._store.pairs.touched_limit = 500
        return backend


TestRocksDBBackend = RocksDBMachine.TestCase
TestSpilling = SpillingMachine.TestCase
TestBranches = only(SpillingMachine, 1, *BRANCHES).TestCase
for _case, _examples in ((TestRocksDBBackend, 40), (TestSpilling, 30), (TestBranches, 60)):
    _case.settings = settings(max_examples=examples(_examples), stateful_step_count=50, deadline=None)
del _case  # or it is collected as a test
