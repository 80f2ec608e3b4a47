"""Keyed state for PySpark streaming: hot Python objects, copy-on-write snapshots, exact restore.

What exists so far is the state engine: states with types (`ValueStateDescriptor` and its siblings), held by a
`HeapKeyedStateBackend` that can be snapshotted while it is changed, rolled back, and asked what changed; and functions
over it, such as `KeyedProcessFunction`, with timers and event time.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from emberstate import _hot

_hot.choose()  # before anything imports a hot module

from emberstate.codec import codec_for, pickle_codec  # noqa: E402
from emberstate.errors import EmberstateError  # noqa: E402
from emberstate.heap.heap_keyed_state_backend import HeapKeyedStateBackend  # noqa: E402
from emberstate.keygroups import KeyGroupRange, KeySchema, range_for_slot  # noqa: E402
from emberstate.runtime.context import FunctionContext  # noqa: E402
from emberstate.runtime.declared_states import (  # noqa: E402
    aggregating_state,
    broadcast_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)
from emberstate.runtime.domain_timers import KeyedTimer, TimeDomain  # noqa: E402
from emberstate.runtime.function import (  # noqa: E402
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
)
from emberstate.runtime.row import Row, RowType  # noqa: E402
from emberstate.runtime.windows import (  # noqa: E402
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindow,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
    window,
)
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

if TYPE_CHECKING:
    from emberstate.checkpoint.fs_state_backend import FsStateBackend
    from emberstate.checkpoint.memory_state_backend import MemoryStateBackend
    from emberstate.checkpoint.rocksdb_state_backend import RocksDBStateBackend

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "EmberstateError",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "FsStateBackend",
    "FunctionContext",
    "GlobalWindow",
    "GlobalWindows",
    "HeapKeyedStateBackend",
    "KeyGroupRange",
    "KeySchema",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedTimer",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MemoryStateBackend",
    "NeverTrigger",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "ReducingState",
    "ReducingStateDescriptor",
    "RocksDBStateBackend",
    "Row",
    "RowType",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeDomain",
    "TimeWindow",
    "Trigger",
    "TriggerResult",
    "TtlConfig",
    "TtlTime",
    "TtlUpdate",
    "TtlVisibility",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "ValueState",
    "ValueStateDescriptor",
    "WindowAssigner",
    "aggregating_state",
    "broadcast_state",
    "codec_for",
    "list_state",
    "map_state",
    "pickle_codec",
    "range_for_slot",
    "reducing_state",
    "value_state",
    "window",
]

#: What loads Arrow, and where it is: imported when it is first asked for, so that `import emberstate` is light.
_LATER = {
    "FsStateBackend": "emberstate.checkpoint.fs_state_backend",
    "MemoryStateBackend": "emberstate.checkpoint.memory_state_backend",
    "RocksDBStateBackend": "emberstate.checkpoint.rocksdb_state_backend",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(_import_module(_LATER[name]), name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
