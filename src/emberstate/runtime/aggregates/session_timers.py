"""A stage of aggregates in sessions that goes from columns to single rows between two runs, or back.

Row by row, a key has a set of its sessions, a record for each where it began, and timers. In columns the record itself
has the bounds, in a numbered place, and the key group has a timer. Both changes happen in the first transaction of the
new way, as ordinary changes of state: if it is rolled back, so are they.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.windows.merging_windows import MERGING_WINDOWS
from emberstate.runtime.windows.time_window import TimeWindow
from emberstate.runtime.windows.window_trigger_context import WINDOW_TIMER

#: The name of the timers of key groups; stored.
SESSIONS: Final = "sessions"


def place(number: int) -> TimeWindow:
    """The namespace of a key's session in columns: 0 is the latest; stored."""
    return TimeWindow(number, number)


def to_rows(
    name: str, records: Any, windows: Any, adopt: Callable[[TimeWindow, bool], None], ctx: FunctionContext
) -> None:
    """Give every key with sessions in columns its set of them, and its timers: rows come one by one now.

    `records` and `windows` are the states of records, called `name`, and of the sets. `adopt` is called with each
    session, whose key is current, and whether it has yet to fire.
    """
    event, context = ctx.timers.event, ctx.backend.context
    were_columns = False
    for group in context.key_group_range:
        for timer in [timer for timer in event.queue.timers_of_group(group) if timer.name == SESSIONS]:
            were_columns = True
            context.set_current_key(timer.key)
            event.delete(SESSIONS, timer.time, timer.namespace)
    if not were_columns:
        return
    for key, namespace in list(ctx.backend.get_keys_and_namespaces(name)):
        if namespace.start == namespace.end:
            context.set_current_key(key)
            old = records.with_namespace(namespace)
            record = old.get_internal()
            old.clear()
            window = TimeWindow(record._start, record._end)
            bare = dataclasses.replace(record, _start=None, _end=None, _phase=None)
            records.with_namespace(window).update_internal(bare)
            windows.put(window, window)
            adopt(window, record._phase == 0)
    event.refresh()


def to_columns(records: Any, windows: Any, expect: Callable[[TimeWindow, bool], None], ctx: FunctionContext) -> None:
    """Put every session of single rows into its place, without its timers: the state is in columns now.

    `expect` is called with each session, whose key is current, and whether it has yet to fire.
    """
    event, context = ctx.timers.event, ctx.backend.context
    ends: dict[Any, list[TimeWindow]] = {}
    for group in context.key_group_range:
        for timer in [timer for timer in event.queue.timers_of_group(group) if timer.name == WINDOW_TIMER]:
            context.set_current_key(timer.key)
            event.delete(WINDOW_TIMER, timer.time, timer.namespace)
            assert isinstance(timer.namespace, TimeWindow)
            if timer.time == timer.namespace.end:
                ends.setdefault(timer.key, []).append(timer.namespace)
    for key in list(ctx.backend.get_keys(MERGING_WINDOWS.name)):
        context.set_current_key(key)
        found = []
        for window, state_window in sorted(windows.items(), reverse=True):
            old = records.with_namespace(state_window)
            found.append((window, old.get_internal()))
            old.clear()
        windows.clear()
        for number, (window, record) in enumerate(found):
            # A session waits with the timer of one of the windows that it was merged from.
            waits = any(window.start <= part.start and part.end <= window.end for part in ends.get(key, ()))
            kept = dataclasses.replace(record, _start=window.start, _end=window.end, _phase=0 if waits else 1)
            records.with_namespace(place(number)).update_internal(kept)
            expect(window, waits)
    event.refresh()
