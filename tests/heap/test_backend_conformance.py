"""The heap backend, with either table, does what every backend must."""

from __future__ import annotations

from typing import Any

import pytest

from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.heap.states.state_table import CopyOnWriteStateTable, NestedMapsStateTable
from emberstate.keygroups import KeySchema
from tests.state.conformance_backend import (
    DeclarationConformance,
    KeyConformance,
    MergeConformance,
    NamespaceConformance,
    PointInTimeConformance,
)
from tests.state.conformance_clean_up import CleanUpConformance
from tests.state.conformance_owner import OwnerConformance
from tests.state.conformance_states import (
    FoldingStateConformance,
    ListStateConformance,
    MapStateConformance,
    ValueStateConformance,
)
from tests.state.conformance_timers import TimerConformance
from tests.state.conformance_ttl import TtlConformance
from tests.state.support import BackendFactory


@pytest.fixture(params=[CopyOnWriteStateTable, NestedMapsStateTable], ids=["copy-on-write", "nested"])
def make_backend(request: pytest.FixtureRequest) -> BackendFactory:
    """How to make a heap backend for keys of a type."""

    def make(key_type: Any = str, **options: Any) -> HeapKeyedStateBackend:
        return HeapKeyedStateBackend(KeySchema.from_python(key_type), table_type=request.param, **options)

    return make


class TestValueState(ValueStateConformance):
    """Value state."""


class TestListState(ListStateConformance):
    """List state."""


class TestMapState(MapStateConformance):
    """Map state."""


class TestFoldingStates(FoldingStateConformance):
    """Reducing and aggregating state."""


class TestKeys(KeyConformance):
    """The current key."""


class TestOwner(OwnerConformance):
    """The owner thread."""


class TestNamespaces(NamespaceConformance):
    """Namespaces."""


class TestMerging(MergeConformance):
    """Merging namespaces."""


class TestDeclarations(DeclarationConformance):
    """Declaring states."""


class TestPointsInTime(PointInTimeConformance):
    """Snapshots, changes and roll-backs."""


class TestTtl(TtlConformance):
    """Time to live."""


class TestCleanUp(CleanUpConformance):
    """Cleaning up what has expired."""


class TestTimers(TimerConformance):
    """Timers."""
