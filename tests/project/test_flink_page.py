"""The page about Flink's heap state: every name in it is public, and its two languages say the same."""

from __future__ import annotations

import importlib

import pytest

#: What Flink's design names and we have under the same name, by the package that exports it.
NAMES = {
    "emberstate": [
        "FsStateBackend",
        "HeapKeyedStateBackend",
        "ListState",
        "MapState",
        "MemoryStateBackend",
        "RocksDBStateBackend",
        "ValueState",
    ],
    "emberstate.checkpoint": ["FsStateBackend", "MemoryStateBackend", "RocksDBStateBackend", "StateBackend"],
    "emberstate.heap": [
        "CopyOnWriteStateMap",
        "CopyOnWriteStateMapSnapshot",
        "CopyOnWriteStateTable",
        "HeapKeyedStateBackend",
        "HeapListState",
        "HeapMapState",
        "HeapValueState",
        "NestedMapsStateTable",
        "NestedStateMap",
        "StateMap",
        "StateMapEntry",
        "StateTable",
    ],
    "emberstate.rocksdb": ["RocksDBKeyedStateBackend", "RocksDBMapState"],
    "emberstate.state": [
        "ImmutableMapState",
        "InternalMapState",
        "KeyedStateBackend",
        "ListState",
        "MapState",
        "TtlMapState",
        "UserFacingMapState",
        "ValueState",
    ],
}


@pytest.mark.parametrize("package", NAMES)
def test_names_are_public(package: str) -> None:
    """Catches: a class of Flink's design that has no stable place to be imported from."""
    module = importlib.import_module(package)
    for name in NAMES[package]:
        assert name in module.__all__
        assert getattr(module, name).__name__ == name


@pytest.mark.parametrize("package", ["emberstate.heap", "emberstate.rocksdb", "emberstate.state"])
def test_every_export_can_be_imported(package: str) -> None:
    """Catches: a public name whose module was renamed, which nobody notices before it is asked for."""
    module = importlib.import_module(package)
    for name in module.__all__:
        getattr(module, name)
