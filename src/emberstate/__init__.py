"""Keyed state for PySpark streaming: hot Python objects, copy-on-write snapshots, exact restore.

A `Pipeline` runs functions such as `KeyedProcessFunction`, with states, timers and event time, on the micro-batches of
a stream; a state backend such as `FsStateBackend` says where state lives and where its checkpoints go. Below it, and
usable without Spark, is the state engine: typed states (`ValueStateDescriptor` and its siblings) in a keyed state
backend that can be snapshotted while it is changed, rolled back, and asked what changed.
"""

from typing import TYPE_CHECKING

from emberstate import _hot
from emberstate._exports import exported
from emberstate.errors import EmberstateError

_hot.choose()  # before anything imports a hot module

if TYPE_CHECKING:
    from emberstate import metrics as metrics
    from emberstate import sinks as sinks
    from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend
    from emberstate.checkpoint.read.read_state import read_changes, read_state
    from emberstate.codec import codec_for, pickle_codec
    from emberstate.heap.backend import HeapKeyedStateBackend
    from emberstate.keygroups import KeyGroupRange, KeySchema, range_for_slot
    from emberstate.runtime.aggregates.names import (
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
    from emberstate.runtime.bootstrap.bootstrap import bootstrap_savepoint
    from emberstate.runtime.functions.batch_keys import BatchKeys
    from emberstate.runtime.functions.column_state import ColumnState
    from emberstate.runtime.functions.context import FunctionContext
    from emberstate.runtime.functions.declared_columns import column_state
    from emberstate.runtime.functions.declared_states import (
        aggregating_state,
        broadcast_state,
        list_state,
        map_state,
        reducing_state,
        value_state,
    )
    from emberstate.runtime.functions.domain_timers import KeyedTimer, TimeDomain
    from emberstate.runtime.functions.function import (
        KeyedBroadcastProcessFunction,
        KeyedCoProcessFunction,
        KeyedProcessFunction,
    )
    from emberstate.runtime.rows.row import Row, RowType
    from emberstate.runtime.windows import (
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
    from emberstate.spark.pipeline import Pipeline
    from emberstate.spark.progress import Progress
    from emberstate.state.descriptors import (
        AggregatingStateDescriptor,
        ListStateDescriptor,
        MapStateDescriptor,
        ReducingStateDescriptor,
        ValueStateDescriptor,
    )
    from emberstate.state.states import (
        AggregateFunction,
        AggregatingState,
        ListState,
        MapState,
        ReducingState,
        ValueState,
    )
    from emberstate.state.ttl.config import TtlConfig, TtlTime, TtlUpdate, TtlVisibility

__version__ = "0.1.0"

__all__ = [
    "AggregateFunction",
    "AggregatingState",
    "AggregatingStateDescriptor",
    "BatchKeys",
    "ColumnState",
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
    "column_state",
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

if not TYPE_CHECKING:  # a type checker would take any name for one of the package's
    # Each name is imported when it is first asked for: a command line or a worker that needs one of them is not kept
    # waiting by all others.
    __getattr__ = exported(
        __name__,
        {
            "checkpoint.backends": ["FsStateBackend", "MemoryStateBackend", "RocksDBStateBackend"],
            "checkpoint.read.read_state": ["read_changes", "read_state"],
            "codec": ["codec_for", "pickle_codec"],
            "heap.backend": ["HeapKeyedStateBackend"],
            "keygroups": ["KeyGroupRange", "KeySchema", "range_for_slot"],
            "runtime.aggregates.names": [
                "any",
                "collect",
                "count",
                "distinct",
                "every",
                "first",
                "fold",
                "last",
                "max",
                "mean",
                "min",
                "sum",
                "top",
            ],
            "runtime.bootstrap.bootstrap": ["bootstrap_savepoint"],
            "runtime.functions.batch_keys": ["BatchKeys"],
            "runtime.functions.column_state": ["ColumnState"],
            "runtime.functions.context": ["FunctionContext"],
            "runtime.functions.declared_columns": ["column_state"],
            "runtime.functions.declared_states": [
                "aggregating_state",
                "broadcast_state",
                "list_state",
                "map_state",
                "reducing_state",
                "value_state",
            ],
            "runtime.functions.domain_timers": ["KeyedTimer", "TimeDomain"],
            "runtime.functions.function": [
                "KeyedBroadcastProcessFunction",
                "KeyedCoProcessFunction",
                "KeyedProcessFunction",
            ],
            "runtime.rows.row": ["Row", "RowType"],
            "runtime.windows": [
                "ContinuousEventTimeTrigger",
                "ContinuousProcessingTimeTrigger",
                "CountTrigger",
                "EventTimeSessionWindows",
                "EventTimeTrigger",
                "GlobalWindow",
                "GlobalWindows",
                "NeverTrigger",
                "ProcessingTimeSessionWindows",
                "ProcessingTimeTrigger",
                "ProcessWindowFunction",
                "PurgingTrigger",
                "SlidingEventTimeWindows",
                "SlidingProcessingTimeWindows",
                "TimeWindow",
                "Trigger",
                "TriggerResult",
                "TumblingEventTimeWindows",
                "TumblingProcessingTimeWindows",
                "WindowAssigner",
                "window",
            ],
            "spark.pipeline": ["Pipeline"],
            "spark.progress": ["Progress"],
            "state.descriptors": [
                "AggregatingStateDescriptor",
                "ListStateDescriptor",
                "MapStateDescriptor",
                "ReducingStateDescriptor",
                "ValueStateDescriptor",
            ],
            "state.states": [
                "AggregateFunction",
                "AggregatingState",
                "ListState",
                "MapState",
                "ReducingState",
                "ValueState",
            ],
            "state.ttl.config": ["TtlConfig", "TtlTime", "TtlUpdate", "TtlVisibility"],
        },
        packages=[
            "checkpoint", "codec", "heap", "keygroups", "metrics", "rocksdb", "sinks", "spark", "state", "storage",
            "testing",
        ],
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
