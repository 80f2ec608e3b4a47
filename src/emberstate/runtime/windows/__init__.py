"""Windows: rows of a key grouped by time. `window` is the entry point.

Assigners say which windows a row is in, triggers when a window fires, and `reduce`, `aggregate` or `process` what it
emits. Contents and triggers live in the key's state, with the window as namespace.

Imports `rows`, `functions` and `operator`.
"""

from emberstate.runtime.windows.assigners import (
    EventTimeSessionWindows,
    GlobalWindows,
    ProcessingTimeSessionWindows,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from emberstate.runtime.windows.process_window_function import ProcessWindowFunction, WindowContext
from emberstate.runtime.windows.time_window import GlobalWindow, TimeWindow
from emberstate.runtime.windows.trigger import Trigger, TriggerContext, TriggerResult
from emberstate.runtime.windows.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    NeverTrigger,
    ProcessingTimeTrigger,
    PurgingTrigger,
)
from emberstate.runtime.windows.windowed_rows import WindowedRows, window

__all__ = [
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountTrigger",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "GlobalWindow",
    "GlobalWindows",
    "NeverTrigger",
    "ProcessWindowFunction",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeWindow",
    "Trigger",
    "TriggerContext",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "WindowAssigner",
    "WindowContext",
    "WindowedRows",
    "window",
]
