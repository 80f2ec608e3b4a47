"""`FunctionContext`: key, times, timers, side outputs and states, for a function while it runs.

One context serves a function from open to close. It describes the current row or timer; a function that keeps it reads
the values of the later moment, or gets an error.

Every time has two forms: an aware datetime, and microseconds (`…_micros`) for computations.

Thread safety: the operator's thread. Any other thread is rejected: when it asks, another row or transaction may be
current.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.runtime.functions.broadcast import BroadcastSide
from emberstate.runtime.functions.timer_service import TimerService
from emberstate.runtime.rows.times import MIN_TIME, from_micros
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.key_context import KeyContext
from emberstate.state.states import AggregatingState, ListState, MapState, ReducingState, ValueState
from emberstate.state.timers import VOID_NAMESPACE
from emberstate.state.ttl.config import TtlTime

if TYPE_CHECKING:
    from emberstate.state.keyed_state_backend import KeyedStateBackend

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class FunctionContext:
    """The `ctx` of a function."""

    __slots__ = (
        "backend",
        "broadcast",
        "counters",
        "emit",
        "event_now",
        "event_ttl",
        "handles",
        "hands_batches",
        "key_context",
        "lag",
        "operator_name",
        "processing_now",
        "time",
        "timed",
        "timers",
    )

    operator_name: str
    timers: TimerService
    time: int
    timed: bool
    event_now: int
    processing_now: int | None
    counters: dict[str, int]
    emit: Callable[[str, Any], None]
    backend: KeyedStateBackend
    key_context: KeyContext
    handles: dict[str, tuple[StateDescriptor, Any]]
    event_ttl: bool
    broadcast: BroadcastSide | None
    hands_batches: bool
    lag: int

    def __init__(
        self,
        operator_name: str,
        backend: KeyedStateBackend,
        timers: TimerService,
        emit: Callable[[str, Any], None],
        broadcast: BroadcastSide | None,
    ) -> None:
        self.operator_name = operator_name
        self.timers = timers
        self.time = 0  # of the current row or timer, if `timed`
        self.timed = False
        self.event_now = MIN_TIME
        self.processing_now = None
        self.counters = {}
        self.emit = emit
        self.backend = backend
        self.key_context = backend.context
        self.handles = {}
        self.event_ttl = False  # whether a state's time to live passes in event time
        self.broadcast = broadcast
        self.hands_batches = True  # whether rows may come as whole batches
        self.lag = 0  # the out-of-orderness of the rows, in microseconds

    # -- the current row or timer ---------------------------------------------------------------------------

    @property
    def key(self) -> Any:
        """The current key: a value, or a tuple if there are several key columns."""
        self.key_context.check_key("ctx.key")
        return self.key_context.key

    @property
    def timestamp(self) -> datetime | None:
        """The event time of the row, or of the event-time timer; None if there is none."""
        self.key_context.check_owner()
        return from_micros(self.time) if self.timed else None

    @property
    def timestamp_micros(self) -> int | None:
        """The same in microseconds."""
        self.key_context.check_owner()
        return self.time if self.timed else None

    @property
    def watermark(self) -> datetime | None:
        """How far event time has got: all timers up to here have fired. None before the first watermark."""
        self.key_context.check_owner()
        return None if self.event_now == MIN_TIME else from_micros(self.event_now)

    @property
    def watermark_micros(self) -> int:
        """The same in microseconds; `emberstate.runtime.rows.times.MIN_TIME` before the first watermark."""
        self.key_context.check_owner()
        return self.event_now

    @property
    def processing_time(self) -> datetime:
        """The transaction's time: the same for all its rows, and when it runs again."""
        self.key_context.check_owner()
        if self.processing_now is None:
            what = "there is no processing time outside a transaction, as in open()"
            raise LifecycleError(what, option="processing_time")
        return from_micros(self.processing_now)

    @property
    def processing_time_micros(self) -> int | None:
        """The same in microseconds; None outside a transaction."""
        self.key_context.check_owner()
        return self.processing_now

    # -- side outputs and counters --------------------------------------------------------------------------

    def output(self, name: str, row: Any) -> None:
        """Emit a row to a side output."""
        self.key_context.check_owner()
        self.emit(name, row)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter of this operator, which is reported when the transaction commits."""
        self.key_context.check_owner()
        self.counters[name] = self.counters.get(name, 0) + by

    # -- states by descriptor -------------------------------------------------------------------------------

    def get_value_state(self, descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """The value state of a descriptor. Call it in `open`, so that a restore knows the state."""
        return self._state(descriptor, ValueStateDescriptor)  # type: ignore[no-any-return]

    def get_list_state(self, descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """The list state of a descriptor. Call it in `open`, so that a restore knows the state."""
        return self._state(descriptor, ListStateDescriptor)  # type: ignore[no-any-return]

    def get_map_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """The map state of a descriptor. Call it in `open`, so that a restore knows the state."""
        return self._state(descriptor, MapStateDescriptor)  # type: ignore[no-any-return]

    def get_reducing_state(self, descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """The reducing state of a descriptor. Call it in `open`, so that a restore knows the state."""
        return self._state(descriptor, ReducingStateDescriptor)  # type: ignore[no-any-return]

    def get_aggregating_state(self, descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """The aggregating state of a descriptor. Call it in `open`, so that a restore knows the state."""
        return self._state(descriptor, AggregatingStateDescriptor)  # type: ignore[no-any-return]

    def get_partitioned_state(
        self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE, *, namespace_type: Any = str
    ) -> Any:
        """A state in a namespace, as users hold it."""
        state = self.backend.get_partitioned_state(descriptor, namespace, namespace_type=namespace_type)
        self.note(descriptor)
        return state

    def get_internal_state(
        self, descriptor: StateDescriptor, namespace: Hashable = VOID_NAMESPACE, *, namespace_type: Any = str
    ) -> Any:
        """A state in a namespace, as windows need it: it checks no types, and merges namespaces."""
        state = self.backend.get_internal_state(descriptor, namespace, namespace_type=namespace_type)
        self.note(descriptor)
        return state

    def get_column_state(self, descriptor: StateDescriptor, *, namespace_type: Any = str) -> Any:
        """A state in columns, for batches; None if the backend has no such states, or rows come one by one."""
        if not self.hands_batches:
            return None
        table = self.backend.get_column_state(descriptor, namespace_type=namespace_type)
        if table is not None:
            self.note(descriptor)
        return table

    def _state(self, descriptor: StateDescriptor, kind: type[StateDescriptor]) -> Any:
        if not isinstance(descriptor, kind):
            raise StateDeclarationError(f"a {kind.__name__} was expected, found {descriptor!r:.200}")
        known = self.handles.get(descriptor.name)
        if known is not None and known[0] is descriptor:
            self.key_context.check_open()
            return known[1]
        handle = self.get_partitioned_state(descriptor)
        self.handles[descriptor.name] = (descriptor, handle)
        return handle

    # -- broadcast state ------------------------------------------------------------------------------------

    def get_broadcast_state(self, descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """The broadcast state of a descriptor. Call it in `open`, so that a restore knows the state."""
        return self._broadcast_side("get_broadcast_state").state(descriptor)

    def apply_to_keyed_state(
        self, descriptor: StateDescriptor, function: Callable[[Any, Any], None], *, namespace_type: Any = str
    ) -> None:
        """Call `function(key, state)` for every key of this slot that has the state. Only for broadcast rows."""
        if not self._broadcast_side("apply_to_keyed_state").writable:
            raise LifecycleError(
                "apply_to_keyed_state() reaches all keys: use it in process_broadcast_element only",
                option="apply_to_keyed_state",
            )
        self.backend.apply_to_all_keys(descriptor, function, namespace_type=namespace_type)

    def _broadcast_side(self, what: str) -> BroadcastSide:
        self.key_context.check_owner()
        if self.broadcast is None:
            raise StateDeclarationError(f"{what}() needs a KeyedBroadcastProcessFunction", option=what)
        return self.broadcast

    # -- for the operator -----------------------------------------------------------------------------------

    def forget(self) -> None:
        """Clear the current row or timer, and the counts."""
        self.counters = {}
        self.timed = False

    def set_timestamp(self, micros: int | None) -> None:
        """Make a row or timer of that event time current."""
        self.timed = micros is not None
        self.time = 0 if micros is None else micros

    def set_processing_time(self, micros: int) -> None:
        """Enter a transaction of that processing time."""
        self.processing_now = micros
        self.backend.ttl_clock.processing_time = micros

    def note(self, descriptor: StateDescriptor) -> None:
        """Let the clock of times to live follow event time, if this state needs it."""
        if descriptor.ttl is not None and descriptor.ttl.time is TtlTime.EVENT and not self.event_ttl:
            self.event_ttl = True
            self.move_watermark(self.event_now)

    def move_watermark(self, micros: cython.longlong) -> None:
        """Set event time to `micros`."""
        self.event_now = micros
        if self.event_ttl:
            self.backend.ttl_clock.event_time = None if micros == MIN_TIME else micros
