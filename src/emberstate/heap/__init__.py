"""Keyed state as Python objects in memory.

`map` has the maps (`CopyOnWriteStateMap` above all), `states` the tables and states over them, `columns` records in
NumPy columns, `loading` fills all of them from checkpoints; `backend` puts them together. A room imports only those
named before it. Nothing here knows of files.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.heap.backend import HeapKeyedStateBackend
    from emberstate.heap.map.copy_on_write_state_map import CopyOnWriteStateMap
    from emberstate.heap.map.entry import StateMapEntry
    from emberstate.heap.map.interface import StateMap, StateMapStatistics
    from emberstate.heap.map.nested_state_map import NestedStateMap, NestedStateMapSnapshot
    from emberstate.heap.map.snapshot_reader import CopyOnWriteStateMapSnapshot
    from emberstate.heap.map.snapshots import SnapshotRegistry
    from emberstate.heap.map.value_kind import IMMUTABLE, MutableKind, ValueKind
    from emberstate.heap.map.visitor import IncrementalVisitor
    from emberstate.heap.states.map_state import HeapMapState
    from emberstate.heap.states.state_table import CopyOnWriteStateTable, NestedMapsStateTable, StateTable
    from emberstate.heap.states.states import HeapFoldingState, HeapListState, HeapValueState
    from emberstate.heap.states.timer_queue import HeapTimerQueue

__all__ = [
    "IMMUTABLE",
    "CopyOnWriteStateMap",
    "CopyOnWriteStateMapSnapshot",
    "CopyOnWriteStateTable",
    "HeapFoldingState",
    "HeapKeyedStateBackend",
    "HeapListState",
    "HeapMapState",
    "HeapTimerQueue",
    "HeapValueState",
    "IncrementalVisitor",
    "MutableKind",
    "NestedMapsStateTable",
    "NestedStateMap",
    "NestedStateMapSnapshot",
    "SnapshotRegistry",
    "StateMap",
    "StateMapEntry",
    "StateMapStatistics",
    "StateTable",
    "ValueKind",
]

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
    __getattr__ = exported(
        __name__,
        {
            "backend": ["HeapKeyedStateBackend"],
            "map.copy_on_write_state_map": ["CopyOnWriteStateMap"],
            "map.entry": ["StateMapEntry"],
            "map.interface": ["StateMap", "StateMapStatistics"],
            "map.nested_state_map": ["NestedStateMap", "NestedStateMapSnapshot"],
            "map.snapshot_reader": ["CopyOnWriteStateMapSnapshot"],
            "map.snapshots": ["SnapshotRegistry"],
            "map.value_kind": ["IMMUTABLE", "MutableKind", "ValueKind"],
            "map.visitor": ["IncrementalVisitor"],
            "states.map_state": ["HeapMapState"],
            "states.state_table": ["CopyOnWriteStateTable", "NestedMapsStateTable", "StateTable"],
            "states.states": ["HeapFoldingState", "HeapListState", "HeapValueState"],
            "states.timer_queue": ["HeapTimerQueue"],
        },
    )
