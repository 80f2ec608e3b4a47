"""Keyed state for PySpark streaming: hot Python objects, copy-on-write snapshots, exact restore.

What exists so far is the state engine: states with types (`ValueStateDescriptor` and its siblings), held by a
`HeapKeyedStateBackend` that can be snapshotted while it is changed, rolled back, and asked what changed.
"""

from emberstate import _hot

_hot.choose()  # before anything imports a hot module

from emberstate.codec import codec_for, pickle_codec  # noqa: E402
from emberstate.errors import EmberstateError  # noqa: E402
from emberstate.heap.heap_keyed_state_backend import HeapKeyedStateBackend  # noqa: E402
from emberstate.keygroups import KeyGroupRange, KeySchema, range_for_slot  # noqa: E402
from emberstate.state.descriptors import (  # noqa: E402
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.states import (  # noqa: E402
    AggregateFunction,
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from emberstate.state.ttl import TtlConfig, TtlTime, TtlUpdate, TtlVisibility  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "EmberstateError",
    "HeapKeyedStateBackend",
    "KeyGroupRange",
    "KeySchema",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "ReducingState",
    "ReducingStateDescriptor",
    "TtlConfig",
    "TtlTime",
    "TtlUpdate",
    "TtlVisibility",
    "ValueState",
    "ValueStateDescriptor",
    "codec_for",
    "pickle_codec",
    "range_for_slot",
]
