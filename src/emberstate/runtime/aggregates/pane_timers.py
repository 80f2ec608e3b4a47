"""A stage of windowed aggregates that goes from columns to single rows between two runs, or back.

Both ways have the same records in the same state. In columns, a window has one timer for a key group; row by row, every
key has its own, and sliding windows an index of each key's slices. Both happen in the first transaction of the new way,
as ordinary changes of state: if it is rolled back, so are they.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Final

from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.window_trigger_context import WINDOW_TIMER

#: The name of the timers of key groups; stored.
PANES: Final = "panes"

#: Windows with the times of their timers.
GroupTimers = set[tuple[TimeWindow, int]]


def single_out(name: str, adopt: Callable[[TimeWindow, GroupTimers], None], ctx: FunctionContext) -> None:
    """Give every key with a pane in state `name` the timers that its key group has: rows come one by one now.

    `adopt` is called with each pane, whose key is current, and the timers of its key group.
    """
    backend, event = ctx.backend, ctx.timers.event
    context = backend.context
    by_group: dict[int, GroupTimers] = {}
    for group in context.key_group_range:
        for timer in [timer for timer in event.queue.timers_of_group(group) if timer.name == PANES]:
            assert isinstance(timer.namespace, TimeWindow)
            by_group.setdefault(group, set()).add((timer.namespace, timer.time))
            context.set_current_key(timer.key)
            event.delete(PANES, timer.time, timer.namespace)
    if not by_group:
        return
    for key, pane in list(backend.get_keys_and_namespaces(name)):
        context.set_current_key(key)
        if context.key_group in by_group:
            adopt(pane, by_group[context.key_group])
    event.refresh()


def group_up(ctx: FunctionContext) -> None:
    """Give every key group the timers that its keys have, each once: the state is in columns now."""
    event, context = ctx.timers.event, ctx.backend.context
    for group in context.key_group_range:
        seen: set[tuple[Hashable, int]] = set()
        for timer in [timer for timer in event.queue.timers_of_group(group) if timer.name == WINDOW_TIMER]:
            context.set_current_key(timer.key)
            event.delete(WINDOW_TIMER, timer.time, timer.namespace)
            if (timer.namespace, timer.time) not in seen:
                seen.add((timer.namespace, timer.time))
                event.register(PANES, timer.time, timer.namespace)
    event.refresh()


def forget_slices(name: str, index: Any, ctx: FunctionContext) -> None:
    """Drop the index of slices, which columns do not need."""
    for key in list(ctx.backend.get_keys(name)):
        ctx.backend.set_current_key(key)
        index.clear()
