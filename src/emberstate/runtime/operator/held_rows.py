"""`HeldRows`: rows that wait in keyed state until event time has passed them.

A stage that reads another handles its rows in the order of their event time over all batches. So a row waits until
nothing older can come any more. Where it waits is ordinary state and a timer queue of the operator: rescaled, rolled
back, in deltas, on every backend.

A row's place is its own event time, or, if it was stamped older than the out-of-orderness allows, the time up to which
it should have come: there it is handled as late. Rows of the same key and place are in order of their origins
(`emissions`), and those of one origin in the order in which they were put out. So the order, and what is late, depend
neither on parallelism nor on how the input was cut.

Invariant: a key has a timer at a place exactly if rows of it are held there.

Thread safety: the backend's owner thread.
"""

from __future__ import annotations

import dataclasses
import operator
from array import array
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from emberstate.runtime.rows.keyed_input import InputRows, KeyedInput
from emberstate.state.descriptors import ListStateDescriptor
from emberstate.state.keyed_state_backend import KeyedStateBackend

#: Names in checkpoints, of the state and of the timer queue.
HELD_ROWS: Final = "held-rows"
HELD_ROWS_DUE: Final = "held-rows due"

_TIMER: Final = "rows"
_ORIGIN: Final = operator.itemgetter(0)
#: About so many rows are handed back at a time.
_TOGETHER: Final = 1_000


class LateRow(NamedTuple):
    """A row whose place in time is later than its own time."""

    place: int
    key: Any
    key_group: int
    time: int
    row: Any
    whole: Any


class HeldRows:
    """The rows that one operator holds: with all their columns, so that what a function gets of them may change."""

    __slots__ = ("_backend", "_due", "_input", "_lag", "_rows")

    def __init__(self, backend: KeyedStateBackend, input: KeyedInput, out_of_orderness: int) -> None:
        self._backend = backend
        self._input = input
        self._lag = out_of_orderness
        descriptor = ListStateDescriptor(HELD_ROWS, tuple[bytes, int, input.row_type.row_class])  # type: ignore[name-defined]
        self._rows = backend.get_internal_state(descriptor, 0, namespace_type=int)
        self._due = backend.get_timer_queue(HELD_ROWS_DUE)

    def hold(self, data: InputRows, watermark: int) -> None:
        """Hold rows; a row before `watermark`, the current event time, gets its place there."""
        assert data.times is not None
        context, rows, due = self._backend.context, self._rows, self._due
        for position, row in enumerate(data.whole_rows()):
            context.set_current_key_and_group(data.keys[position], data.groups[position])
            time = data.times[position]
            origin, reached = (b"", watermark) if data.origins is None else data.origins[position]
            place = max(time, reached - self._lag, watermark)
            rows.with_namespace(place).add((origin, time, row))
            due.register(place, _TIMER)

    def take(self, last: int) -> Iterator[InputRows | LateRow]:
        """Yield the rows whose place is at most `last`, in order, many together or one late row, and release them."""
        context = self._backend.context
        pending = _Pending(self._input)
        while (timer := self._due.poll(last)) is not None:
            state, group = self._rows.with_namespace(timer.time), context.key_group
            rows = state.get() or []
            state.clear()
            rows.sort(key=_ORIGIN)  # stable
            for _, time, row in rows:
                if time < timer.time:
                    yield from pending.take()
                    yield LateRow(timer.time, timer.key, group, time, _shaped([row], self._input)[0], row)
                else:
                    pending.add(row, timer.key, group, time)
            if len(pending.rows) >= _TOGETHER:
                yield from pending.take()
        yield from pending.take()


class _Pending:
    """Rows on their way to a function."""

    def __init__(self, input: KeyedInput) -> None:
        self._input = input
        self._reset()

    def _reset(self) -> None:
        self.rows: list[Any] = []
        self._keys: list[Any] = []
        self._groups = array("i")
        self._times = array("q")

    def add(self, row: Any, key: Any, group: int, time: int) -> None:
        self.rows.append(row)
        self._keys.append(key)
        self._groups.append(group)
        self._times.append(time)

    def take(self) -> Iterator[InputRows]:
        """Yield all rows, if there are any, and clear them."""
        if self.rows:
            made = InputRows(self._keys, memoryview(self._groups), memoryview(self._times), self.rows, [], tuple)
            if self._input.shape is not None:
                made = dataclasses.replace(made, made=_shaped(self.rows, self._input), whole=made)
            self._reset()
            yield made


def _shaped(rows: list[Any], input: KeyedInput) -> list[Any]:
    """Whole rows as the function gets them."""
    return rows if input.shape is None else input.shape.of_rows(rows, input.row_type)
