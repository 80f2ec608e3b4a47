"""Keyed state for PySpark streaming: hot Python objects, copy-on-write snapshots, exact restore.

A `Pipeline` runs functions such as `KeyedProcessFunction`, with states, timers and event time, on the micro-batches of
a stream; a state backend such as `FsStateBackend` says where state lives and where its checkpoints go. Below it, and
usable without Spark, is the state engine: typed states (`ValueStateDescriptor` and its siblings) in a keyed state
backend that can be snapshotted while it is changed, rolled back, and asked what changed.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING, Any

from emberstate import _hot

_hot.choose()  # before anything imports a hot module

from emberstate.codec import codec_for, pickle_codec  # noqa: E402
from emberstate.errors import EmberstateError  # noqa: E402
from emberstate.heap.backend import HeapKeyedStateBackend  # noqa: E402
from emberstate.keygroups import KeyGroupRange, KeySchema, range_for_slot  # noqa: E402
from emberstate.runtime.aggregates.names import (  # noqa: E402
    any,
    collect,
    count,
    distinct,
    every,
    first,
    fold,
    last,
    max,
    mean,
    min,
    sum,
    top,
)
from emberstate.runtime.functions.context import FunctionContext  # noqa: E402
from emberstate.runtime.functions.declared_states import (  # noqa: E402
    aggregating_state,
    broadcast_state,
    list_state,
    map_state,
    reducing_state,
    value_state,
)
from emberstate.runtime.functions.domain_timers import KeyedTimer, TimeDomain  # noqa: E402
from emberstate.runtime.functions.function import (  # noqa: E402
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
)
from emberstate.runtime.rows.row import Row, RowType  # noqa: E402
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
from emberstate.state.ttl.config import TtlConfig, TtlTime, TtlUpdate, TtlVisibility  # noqa: E402

if TYPE_CHECKING:
    from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend
    from emberstate.checkpoint.read.read_state import read_changes, read_state
    from emberstate.runtime.bootstrap.bootstrap import bootstrap_savepoint
    from emberstate.spark.pipeline import Pipeline
    from emberstate.spark.progress import Progress

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
    "Pipeline",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "Progress",
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
    "any",
    "bootstrap_savepoint",
    "broadcast_state",
    "codec_for",
    "collect",
    "count",
    "distinct",
    "every",
    "first",
    "fold",
    "last",
    "list_state",
    "map_state",
    "max",
    "mean",
    "min",
    "pickle_codec",
    "range_for_slot",
    "read_changes",
    "read_state",
    "reducing_state",
    "sum",
    "top",
    "value_state",
    "window",
]

#: What loads Arrow, and where it is: imported when it is first asked for, so that `import emberstate` is light.
_LATER = {
    "FsStateBackend": "emberstate.checkpoint.backends",
    "MemoryStateBackend": "emberstate.checkpoint.backends",
    "Pipeline": "emberstate.spark.pipeline",
    "Progress": "emberstate.spark.progress",
    "RocksDBStateBackend": "emberstate.checkpoint.backends",
    "bootstrap_savepoint": "emberstate.runtime.bootstrap.bootstrap",
    "read_changes": "emberstate.checkpoint.read.read_state",
    "read_state": "emberstate.checkpoint.read.read_state",
}

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(_import_module(_LATER[name]), name)
        return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
