"""`Harness`: runs a function without Spark and without a JVM, with everything else real.

Rows are typed and go through Arrow both ways, state goes through its codecs into checkpoints and is compared with
what a restore returns after every transaction, slots own key groups, and clocks move only when a test moves them.

Every row is a transaction of its own: if the function raises, state, timers and outputs are as they were before
it, and the error is raised. `process_batch` is one transaction of many rows, as a micro-batch is.

Invariants: `output` has every committed row once; after every transaction, stored and live state are equal.

Thread safety: the thread that made it; another is rejected.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Literal, Self

from emberstate.checkpoint.backends import MemoryStateBackend, StateBackend
from emberstate.checkpoint.commit.coordinator import CoordinatorStatistics
from emberstate.checkpoint.manifest.pins import Pin, pin
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices
from emberstate.checkpoint.restore.verdict import RestoreVerdict
from emberstate.clock import ManualClock
from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM
from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.runtime.aggregates.emission import Emit
from emberstate.runtime.aggregates.function import aggregate_function
from emberstate.runtime.aggregates.spec import AggregateSpec
from emberstate.runtime.functions.domain_timers import KeyedTimer
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.operator.operator import OperatorStatistics
from emberstate.runtime.operator.shaped_inputs import broadcast_shape, main_output, shaped_inputs
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import Row, RowType
from emberstate.runtime.rows.times import MAX_TIME, from_micros, to_micros
from emberstate.runtime.windows.windowed_rows import WindowedRows
from emberstate.state.timers import VOID_NAMESPACE
from emberstate.testing import peek
from emberstate.testing.aggregated_input import AggregatedInput
from emberstate.testing.input_batches import batches_by_slot, coerced, record_batch
from emberstate.testing.local_job import CrashPoint, JobStatistics, LocalJob, Work
from emberstate.units import Duration, as_micros

#: The processing time that a harness starts at, unless it is told another.
START: Final = datetime(2026, 1, 1, tzinfo=UTC)

Schema = RowType | str
OutputSchema = Schema | type[Any]
CrashTime = Literal["now", "before prepare", "after prepare", "after commit"]


@dataclasses.dataclass(frozen=True, slots=True)
class HarnessSnapshot:
    """A checkpoint to go back to, by `Harness.restore`."""

    number: int


@dataclasses.dataclass(frozen=True, slots=True)
class HarnessStatistics:
    """What a harness has done."""

    job: JobStatistics
    coordinator: CoordinatorStatistics
    #: Of the slots that hold state.
    operators: tuple[OperatorStatistics, ...]


class Harness:
    """Runs one function; a context manager.

    >>> import emberstate as es
    >>> class Count(es.KeyedProcessFunction):
    ...     seen = es.value_state(int, default=0)
    ...
    ...     def process_element(self, row, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    ...         yield row.card, self.seen.value()
    >>> with Harness(Count(), schema="card string", key="card", output="card string, n bigint") as harness:
    ...     harness.process({"card": "ann"}, {"card": "bob"}, {"card": "ann"})
    ...     harness.crash()
    ...     harness.process(("ann",))
    ...     harness.state("seen", "ann")
    [Row(card='ann', n=1), Row(card='bob', n=1), Row(card='ann', n=2)]
    [Row(card='ann', n=3)]
    3
    """

    def __init__(
        self,
        function: ProcessFunction,
        *,
        schema: Schema,
        key: str | Sequence[str],
        event_time: str | None = None,
        zone: str | None = None,
        out_of_orderness: Duration = "0 seconds",
        follows_event_time: bool = False,
        output: OutputSchema | None = None,
        side_outputs: Mapping[str, OutputSchema] | None = None,
        late_output: str | None = None,
        second: KeyedInput | None = None,
        broadcast: Schema | None = None,
        columns: Sequence[str] | None = None,
        name: str = "operator",
        parallelism: int = 1,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        state_backend: StateBackend | None = None,
        processing_time: datetime = START,
    ) -> None:
        """Open the function over rows of `schema`, keyed by one column or several.

        `second` is the other input of a `KeyedCoProcessFunction`, `broadcast` the schema of a
        `KeyedBroadcastProcessFunction`'s broadcast rows. An output without a schema takes no rows. `zone` says what
        zone the wall times of a TIMESTAMP_NTZ event time are of. `follows_event_time` is for a stage that has no event
        time in a pipeline that has: `advance_watermark` moves it. `columns` is that of `Pipeline.process`.
        """
        first = KeyedInput(schema, [key] if isinstance(key, str) else key, event_time=event_time, zone=zone)
        spec = StageSpec(
            name=name,
            function=function,
            inputs=(first,) if second is None else (first, second),
            broadcast=None if broadcast is None else RowType.of(broadcast),
            output=None if output is None else RowType.of(output),
            side_outputs={side: RowType.of(type_) for side, type_ in (side_outputs or {}).items()},
            late_output=late_output,
            out_of_orderness=out_of_orderness,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            follows_event_time=follows_event_time,
        )
        self._columns = columns
        spec = self._shaped(spec)
        given = [input.out_of_orderness for input in spec.inputs]
        self._lags = [
            as_micros(out_of_orderness if one is None else one, "out_of_orderness", f"operator {name!r}")
            for one in given
        ]
        self._clock = ManualClock(to_micros(processing_time, "processing_time", "a harness"))
        backend = MemoryStateBackend() if state_backend is None else state_backend
        self._job = LocalJob(spec, backend, self._clock)
        self._job.open(spec, NO_CHOICES)
        self._outputs: dict[str, list[Row]] = {}
        self._aggregated: AggregatedInput | None = None
        self._taken = 0
        self._pins: list[Pin] = []
        self._crash: CrashPoint | None = None
        self._owner = threading.get_ident()
        self._closed = False

    @classmethod
    def of_aggregates(
        cls,
        aggregates: Mapping[str, Aggregate],
        *,
        schema: Schema,
        key: str | Sequence[str] = (),
        event_time: str | None = None,
        zone: str | None = None,
        out_of_orderness: Duration = "0 seconds",
        window: WindowedRows | None = None,
        emit: Emit | None = None,
        name: str = "operator",
        parallelism: int = 1,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        state_backend: StateBackend | None = None,
        processing_time: datetime = START,
    ) -> Self:
        """Open a stage of declared aggregates, as `Pipeline.aggregate` adds one; its output's schema is derived.

        >>> import emberstate as es
        >>> totals = {"n": es.count(), "total": es.sum("amount")}
        >>> with Harness.of_aggregates(totals, schema="card string, amount int", key="card") as harness:
        ...     harness.process_batch([("ann", 3), ("bob", 1), ("ann", 2)])
        ...     harness.process(("ann", 1))
        [Row(card='ann', n=2, total=5), Row(card='bob', n=1, total=1)]
        [Row(card='ann', n=3, total=6)]
        """
        keys = [key] if isinstance(key, str) else key
        spec = AggregateSpec.of(aggregates, schema, keys, event_time=event_time, window=window, emit=emit)
        aggregated = AggregatedInput(spec, zone)
        late = None if window is None else window.late_output
        made = cls(
            aggregate_function(spec),
            schema=spec.partial,
            key=spec.keys,
            event_time=aggregated.partial.event_time,
            out_of_orderness=out_of_orderness,
            output=spec.output,
            side_outputs={} if late is None else {late: spec.input},
            name=name,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            state_backend=state_backend,
            processing_time=processing_time,
        )
        made._aggregated = aggregated
        return made

    # -- life -----------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the function; a second call does nothing. Outputs can still be read."""
        if not self._closed:
            self._closed = True
            for held in self._pins:
                held.release()
            self._job.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- rows -----------------------------------------------------------------------------------------------

    def process(self, *rows: Any) -> list[Row]:
        """Handle rows, each in a transaction of its own, and return their rows of the main output.

        A row is a dict by column name, a tuple in the order of the columns, or a `Row`.

        Raises:
            UserFunctionError: the function raised; its own exception is the cause. The row changed nothing.
            RowTypeError: a row does not fit its schema, on the way in or out.
        """
        checked = self._rows(rows)
        return [out for row in checked for out in self._run_rows([row])]

    def process2(self, *rows: Any) -> list[Row]:
        """The same for the second input of a `KeyedCoProcessFunction`."""
        checked = coerced(rows, self._input(1).row_type, "a row of the second input")
        return [out for row in checked for out in self._run_rows([], [row])]

    def process_broadcast(self, *rows: Any) -> list[Row]:
        """Handle broadcast rows, each in a transaction of its own: every slot sees every one of them."""
        return [out for row in rows for out in self.process_batch(broadcast=[row])]

    def process_batch(
        self, rows: Iterable[Any] = (), *, second: Iterable[Any] = (), broadcast: Iterable[Any] = ()
    ) -> list[Row]:
        """Handle rows in one transaction, as a micro-batch: broadcast rows first, then in order of event time.

        The transaction's watermark follows from the rows of earlier ones. Without rows it only moves the watermark
        there and fires the timers that are due.
        """
        first = self._rows(rows)
        other = list(second)
        if other:
            other = coerced(other, self._input(1).row_type, "a row of the second input")
        return self._run_rows(first, other, list(broadcast))

    # -- time -----------------------------------------------------------------------------------------------

    @property
    def processing_time(self) -> datetime:
        """The time by the injected clock."""
        return from_micros(self._clock.now_micros())

    @property
    def watermark(self) -> datetime | None:
        """The watermark that the next transaction will have; None while there is none."""
        micros = self._next_watermark()
        return None if micros is None else from_micros(micros)

    def advance_processing_time(self, to: datetime | Duration) -> list[Row]:
        """Set the clock, or move it by a duration, and run a transaction without rows: timers that are due fire.

        It may be set back, as clocks are.
        """
        micros = (
            to_micros(to, "to", "advance_processing_time")
            if isinstance(to, datetime)
            else self._clock.now_micros() + as_micros(to, "to", "advance_processing_time")
        )
        before = self._clock.now_micros()
        self._clock.set(micros)
        try:
            return self._run(Work(), self._next_watermark())
        except BaseException:
            self._clock.set(before)
            raise

    def advance_watermark(self, to: datetime) -> list[Row]:
        """Run a transaction without rows, at this watermark: event-time timers up to it fire, and rows of an
        earlier time are late from here on.

        Raises:
            LifecycleError: it would go back.
        """
        return self._move_watermark(to_micros(to, "to", "advance_watermark"))

    def close_input(self) -> list[Row]:
        """End the input, as a batch job does: all event-time timers fire. Later rows are late."""
        return self._move_watermark(MAX_TIME)

    # -- results --------------------------------------------------------------------------------------------

    @property
    def output(self) -> list[Row]:
        """The rows of the main output so far; of several slots' rows of one transaction, those of the first come
        first."""
        return list(self._outputs.get(MAIN, ()))

    def take(self) -> list[Row]:
        """The rows of the main output since the last call."""
        rows = self._outputs.get(MAIN, [])[self._taken :]
        self._taken += len(rows)
        return rows

    def side_output(self, name: str) -> list[Row]:
        """The rows of a side output, or of the late output, so far."""
        if name not in self._job.spec.row_types or name == MAIN:
            declared = sorted(self._job.spec.row_types.keys() - {MAIN})
            what = f"there is no side output {name!r}, declared are {declared}"
            raise StateDeclarationError(what, operator=self._job.spec.name, expected=declared, found=name)
        return list(self._outputs.get(name, ()))

    @property
    def counters(self) -> dict[str, int]:
        """What the function counted by `ctx.count`, in transactions that committed."""
        prefix = "counter/"
        counts = self._job.counts.items()
        return {name.removeprefix(prefix): count for name, count in counts if name.startswith(prefix)}

    @property
    def late_rows(self) -> int:
        """How many rows were behind the watermark."""
        return self._job.counts["late_rows"]

    @property
    def late_rows_dropped(self) -> int:
        """How many of them reached no method of the function."""
        return self._job.counts["late_rows_dropped"]

    @property
    def timers_fired(self) -> int:
        """How many timers have fired."""
        return self._job.counts["timers_fired"]

    # -- reading state --------------------------------------------------------------------------------------

    def state(self, name: str, key: Any, namespace: Any = VOID_NAMESPACE) -> Any:
        """Return what a state of a key holds: a value, a list, a dict, a reduced or aggregated value.

        None, [] or {} if there is nothing; a default is not shown. Reading changes nothing, not even a stamp.
        """
        self._check_open()
        found = [entry.value for entry in peek.entries(self._job, name, key) if entry.namespace == namespace]
        if found:
            return found[0]
        kind = self._job.declared_like(0).backend.registered_states[name].descriptor.kind
        return {"list": [], "map": {}}.get(kind)

    def keys(self, name: str, namespace: Any = VOID_NAMESPACE) -> list[Any]:
        """The keys that have a state, sorted."""
        self._check_open()
        return sorted(entry.key for entry in peek.entries(self._job, name) if entry.namespace == namespace)

    def namespaces(self, name: str, key: Any) -> list[Any]:
        """The namespaces in which a key has a state, such as its windows, sorted."""
        self._check_open()
        return sorted(entry.namespace for entry in peek.entries(self._job, name, key))

    def broadcast_state(self, name: str) -> dict[Any, Any]:
        """What a broadcast state holds."""
        self._check_open()
        return peek.broadcast_entries(self._job, name)

    def timers(self, key: Any = None) -> list[KeyedTimer]:
        """The timers of a key, or of all keys, in order of time."""
        self._check_open()
        return peek.timers(self._job, key)

    # -- points in time, changed programs, faults -----------------------------------------------------------

    def snapshot(self) -> HarnessSnapshot:
        """A point to go back to."""
        self._check_open()
        number = self._job.latest.number
        self._pins.append(pin(self._job.storage, number, "a harness's snapshot", clock=self._clock))
        return HarnessSnapshot(number)

    def restore(
        self,
        snapshot: HarnessSnapshot | None = None,
        *,
        function: ProcessFunction | None = None,
        aggregates: Mapping[str, Aggregate] | None = None,
        parallelism: int | None = None,
        output: OutputSchema | None = None,
        drop_states: Sequence[str] = (),
        keep_states: Sequence[str] = (),
        rename_states: Mapping[str, str] | None = None,
        rename_fields: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Stop, and start again from the latest checkpoint or from a snapshot: with more or fewer slots, with
        changed code.

        Outputs stay, and the clock goes on. The last four decide about stored states that the function no longer has.

        Raises:
            RestoreRefusedError: the state does not fit the function; the message says what to do. The harness goes
                on with what it had.
        """
        self._check_open()
        choices = RestoreChoices(drop_states, keep_states, rename_states or {}, rename_fields or {})
        aggregated = self._with(aggregates)
        spec = self._changed(function, parallelism, output, aggregated)
        self._job.open(spec, choices, None if snapshot is None else snapshot.number)
        self._aggregated = aggregated

    def verdict(
        self,
        snapshot: HarnessSnapshot | None = None,
        *,
        function: ProcessFunction | None = None,
        aggregates: Mapping[str, Aggregate] | None = None,
        drop_states: Sequence[str] = (),
        keep_states: Sequence[str] = (),
        rename_states: Mapping[str, str] | None = None,
        rename_fields: Mapping[str, Mapping[str, str]] | None = None,
    ) -> RestoreVerdict:
        """What `restore` with the same arguments would do with each state; nothing is changed."""
        self._check_open()
        choices = RestoreChoices(drop_states, keep_states, rename_states or {}, rename_fields or {})
        number = self._job.latest.number if snapshot is None else snapshot.number
        return self._job.verdict(self._changed(function, None, None, self._with(aggregates)), choices, number)

    def crash(self, when: CrashTime = "now") -> None:
        """Lose everything in memory, as a killed process does: now, or at that point of the next transaction.

        The next transaction goes on from the latest checkpoint. The one that crashes comes again, with the same
        batch id, and is run again or, if it had committed, delivered from its checkpoint: a test sees its outputs
        and its changes once.
        """
        self._check_open()
        if when == "now":
            self._job.crash()
            return
        try:
            self._crash = CrashPoint(when)
        except ValueError:
            points = ["now", *(point.value for point in CrashPoint)]
            what = f"a crash comes at one of {points}, found {when!r}"
            raise StateDeclarationError(what, option="when", expected=points) from None

    # -- monitoring -----------------------------------------------------------------------------------------

    def statistics(self) -> HarnessStatistics:
        """Return counts so far."""
        return HarnessStatistics(
            dataclasses.replace(self._job.statistics),
            self._job.coordinator.statistics(),
            tuple(operator.statistics() for operator in self._job.operators),
        )

    def check_invariants(self) -> None:
        """Raise `InvariantError` if anything is broken, or stored and live state differ. O(all entries)."""
        for operator in self._job.operators:
            operator.check_invariants()
        self._job.check_round_trip()

    # -- inside ---------------------------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._closed:
            raise LifecycleError("the harness is closed: make another", found="closed")
        if threading.get_ident() != self._owner:
            raise LifecycleError("a harness is used by the thread that made it, found another: make one for each")

    def _input(self, number: int) -> KeyedInput:
        self._check_open()
        inputs = self._job.spec.inputs
        if number >= len(inputs):
            raise StateDeclarationError(
                f"operator {self._job.spec.name!r} has no second input: only a KeyedCoProcessFunction has one",
                operator=self._job.spec.name,
                option="second",
            )
        return inputs[number]

    def _rows(self, rows: Iterable[Any]) -> list[tuple[Any, ...]]:
        """Rows of the first input, as the operator gets them."""
        if self._aggregated is None:
            return coerced(rows, self._input(0).row_type, "a row")
        self._check_open()
        return self._aggregated.of(coerced(rows, self._aggregated.spec.input, "a row"))

    def _changed(
        self,
        function: ProcessFunction | None,
        parallelism: int | None,
        output: OutputSchema | None,
        aggregated: AggregatedInput | None,
    ) -> StageSpec:
        spec = self._job.spec
        changed = dataclasses.replace(
            spec,
            function=spec.function if function is None else function,
            parallelism=spec.parallelism if parallelism is None else parallelism,
            output=(spec.output if function is None else None) if output is None else RowType.of(output),
        )
        return self._shaped(changed, spec.output) if aggregated is None else aggregated.stage(changed)

    def _shaped(self, spec: StageSpec, otherwise: RowType | None = None) -> StageSpec:
        """The stage with the rows and the output that its function names; `otherwise` with this output."""
        where, columns = f"operator {spec.name!r}", [self._columns, None][: len(spec.inputs)]
        output = main_output(spec.function, spec.output, where)
        return dataclasses.replace(
            spec,
            inputs=shaped_inputs(spec.function, spec.inputs, columns, where, whole=True),
            broadcast_shape=broadcast_shape(spec.function, spec.broadcast, where),
            output=otherwise if output is None else output,
        )

    def _with(self, aggregates: Mapping[str, Aggregate] | None) -> AggregatedInput | None:
        if aggregates is None or self._aggregated is None:
            if aggregates is not None:
                what = "aggregates= changes those of a harness that of_aggregates made: give function="
                raise StateDeclarationError(what, option="aggregates")
            return self._aggregated
        return self._aggregated.with_aggregates(aggregates)

    def _run_rows(self, first: list[Any], second: Sequence[Any] = (), broadcast: Sequence[Any] = ()) -> list[Row]:
        spec = self._job.spec
        side = None
        if broadcast:
            if spec.broadcast is None:
                what = f"operator {spec.name!r} takes no broadcast rows"
                raise StateDeclarationError(what, operator=spec.name, option="broadcast")
            rows = coerced(broadcast, spec.broadcast, "a broadcast row")
            side = record_batch(rows, spec.broadcast, "a broadcast row")
        keyed = (first,) if len(spec.inputs) == 1 else (first, list(second))
        return self._run(Work(side, tuple(batches_by_slot(keyed, spec))), self._next_watermark())

    def _run(self, work: Work, watermark: int | None) -> list[Row]:
        self._check_open()
        crash, self._crash = self._crash, None
        delivered = self._job.run(work, watermark, crash)
        for name, rows in delivered.items():
            self._outputs.setdefault(name, []).extend(rows)
        return delivered.get(MAIN, [])

    def _next_watermark(self) -> int | None:
        """Return the watermark that earlier rows or an advance have reached, whichever is later."""
        batch = self._job.latest.batch
        if batch is None:
            return None
        times = [batch.max_event_time]
        if len(self._lags) == 2:
            times = [one.max_event_time for one in batch.of_inputs(2)]
        known = [] if batch.watermark is None else [batch.watermark]
        reached = [time - lag for time, lag in zip(times, self._lags, strict=True) if time is not None]
        if len(reached) == len(self._lags):  # an input without rows holds it back
            known.append(min(reached))
        return max(known, default=None)

    def _move_watermark(self, micros: int) -> list[Row]:
        self._check_open()
        before = self._next_watermark()
        if before is not None and micros < before:
            was, now = from_micros(before), from_micros(micros)
            raise LifecycleError(
                f"the watermark would go back from {was} to {now}: it only grows", expected=was, found=now
            )
        return self._run(Work(), micros)
