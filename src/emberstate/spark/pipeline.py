"""`Pipeline`: what a user builds: keyed stages with state, and where their output goes.

A pipeline is a value: every method gives a new one. What it runs, it runs through a `BatchRunner` of its own per run of
a query; a second run of the same pipeline takes the job over from the first.

Thread safety: building, any thread. As a callable, the thread of one query's batches at a time; a call on behalf of a
query that was stopped is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.retention import DEFAULT_RETAINED
from emberstate.checkpoint.commit.starting_point import find_latest
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices, names_in
from emberstate.clock import Clock, SystemClock
from emberstate.errors import EmberstateError, LifecycleError, StateDeclarationError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.windows import Trigger, WindowAssigner, window
from emberstate.spark.driver.batch_runner import BatchRunner
from emberstate.spark.driver.callbacks import checked_listener, checked_sink
from emberstate.spark.driver.keyed_frame import tagged
from emberstate.spark.driver.source_position import SourcePosition, source_position
from emberstate.spark.heartbeat import AtEnd, Ticks, ticks_of
from emberstate.spark.plan.pipeline import Listener, PipelinePlan, SavepointStart, Sink
from emberstate.spark.plan.stage import InputPlan, NullKeys, StagePlan, as_columns, as_row_type, row_type_of_frame
from emberstate.spark.plan.windowed_stage import WindowedStage
from emberstate.spark.progress import Progress
from emberstate.spark.slot.failure import cause_first, one_line, was_stopped
from emberstate.spark.spark_session import NO_CONNECT, missing_settings, refuse_connect
from emberstate.units import Duration, as_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    Schema = RowType | str | StructType

_log = logging.getLogger("emberstate.spark")

@dataclasses.dataclass(frozen=True, slots=True)
class _Next:
    """What was said of the stage that comes next."""

    input: InputPlan | None = None
    out_of_orderness: Duration = "0 seconds"
    idle_timeout: Duration | None = None
    second: tuple[str, InputPlan] | None = None
    broadcast: str | None = None


class Pipeline:
    """Keyed stages over a stream or a DataFrame.

    >>> import emberstate as es
    >>> class Count(es.KeyedProcessFunction):
    ...     seen = es.value_state(int, default=0)
    ...
    ...     def process_element(self, row, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    ...         yield row.card, self.seen.value()
    >>> counts = (
    ...     Pipeline("counts", es.MemoryStateBackend())
    ...     .key_by("card")
    ...     .process("count", Count(), schema="card string, seen bigint")
    ...     .sink(lambda df, batch_id: df.show())
    ... )
    >>> counts
    Pipeline('counts', stages=['count'])
    """

    def __init__(
        self,
        name: str,
        backend: StateBackend,
        *,
        parallelism: int | None = None,
        max_parallelism: int = DEFAULT_MAX_PARALLELISM,
        retained: int = DEFAULT_RETAINED,
        slot_idle: Duration = "10 minutes",
        slot_stall: Duration = "5 minutes",
        policy: ChainPolicy = DEFAULT_POLICY,
        clock: Clock | None = None,
    ) -> None:
        """A pipeline whose state is that of job `name` at the backend's location.

        `parallelism` is the number of slots, by default Spark's default parallelism; it may change from start to
        start. `max_parallelism`, the number of key groups, may not. `retained` checkpoints are kept. A slot without
        work ends after `slot_idle`, and restores when there is work again. A slot that makes no progress for
        `slot_stall` (no row or timer done, nothing read or written) is ended, and Spark runs its task again.
        """
        self._plan = PipelinePlan(
            name=name, backend=backend, parallelism=parallelism, max_parallelism=max_parallelism, retained=retained,
            slot_idle=slot_idle, slot_stall=slot_stall, policy=policy, clock=SystemClock() if clock is None else clock,
        )  # fmt: skip
        self._next = _Next()
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._runner: BatchRunner | None = None
        self._run_id = ""
        self._warned = False
        self._told = False  # that timers wait for data
        self._error: Exception | None = None

    def _with(self, plan: PipelinePlan | None = None, then: _Next | None = None) -> Self:
        made = object.__new__(type(self))
        made._plan = self._plan if plan is None else plan
        made._next = self._next if then is None else then
        made._reset()
        return made

    def __reduce__(self) -> Any:
        raise StateDeclarationError(
            f"pipeline {self.name!r} is to be pickled, as foreachBatch of Spark Connect does: {NO_CONNECT}"
        )

    def __repr__(self) -> str:
        return f"Pipeline({self._plan.name!r}, stages={[stage.name for stage in self._plan.stages]})"

    @property
    def name(self) -> str:
        """The job's name."""
        return self._plan.name

    # -- stages ---------------------------------------------------------------------------------------------

    def key_by(self, *columns: str, null_keys: NullKeys = "refuse") -> Self:
        """Give every key its own state: the next stage's rows are keyed by these columns.

        A row in which one of them is null is refused, or, with `null_keys="drop"`, dropped and counted.
        """
        if null_keys not in ("refuse", "drop"):
            raise StateDeclarationError(f"null_keys is 'refuse' or 'drop', found {null_keys!r}")
        before = self._next.input
        time = None if before is None else before.event_time
        zone = None if before is None else before.zone
        input = InputPlan(key_columns=as_columns(columns), event_time=time, zone=zone, null_keys=null_keys)
        return self._with(then=dataclasses.replace(self._next, input=input))

    def event_time(
        self,
        column: str,
        out_of_orderness: Duration = "0 seconds",
        *,
        zone: str | None = None,
        idle_timeout: Duration | None = None,
    ) -> Self:
        """Have the next stage see rows in order of this column, with a watermark `out_of_orderness` behind the latest.

        A TIMESTAMP_NTZ column needs the `zone` its readings are of. On a stream without rows the watermark stands
        still, unless `idle_timeout` is given: after so long it goes on at the pace of the clock.
        """
        if self._next.input is None:
            raise StateDeclarationError("event_time comes after key_by")
        as_duration(out_of_orderness, "out_of_orderness")
        if idle_timeout is not None:
            as_duration(idle_timeout, "idle_timeout")
        input = dataclasses.replace(self._next.input, event_time=column, zone=zone)
        return self._with(
            then=dataclasses.replace(
                self._next, input=input, out_of_orderness=out_of_orderness, idle_timeout=idle_timeout
            )
        )

    def connect(
        self,
        name: str,
        *columns: str,
        event_time: str | None = None,
        out_of_orderness: Duration | None = None,
        zone: str | None = None,
        idle_timeout: Duration | None = None,
    ) -> Self:
        """Add a second input with the same kind of key to the first stage, for a `KeyedCoProcessFunction`.

        The watermark is that of the input which is behind. `out_of_orderness` and `idle_timeout` are those of the first
        input, unless they are given.
        """
        self._check_other(name)
        if self._next.input is None:
            raise StateDeclarationError("connect comes after key_by")
        if out_of_orderness is not None:
            as_duration(out_of_orderness, "out_of_orderness")
        if idle_timeout is not None:
            as_duration(idle_timeout, "idle_timeout")
        plan = InputPlan(
            key_columns=as_columns(columns),
            event_time=event_time,
            zone=zone,
            null_keys=self._next.input.null_keys,
            out_of_orderness=out_of_orderness,
            idle_timeout=idle_timeout,
        )
        return self._with(then=dataclasses.replace(self._next, second=(name, plan)))

    def broadcast(self, name: str) -> Self:
        """Add an input whose rows every slot gets to the first stage, for a `KeyedBroadcastProcessFunction`."""
        self._check_other(name)
        return self._with(then=dataclasses.replace(self._next, broadcast=name))

    def _check_other(self, name: str) -> None:
        if self._plan.stages:
            raise StateDeclarationError(
                f"input {name!r}: a second input belongs to the first stage; later ones read the stage before"
            )
        if self._next.second is not None or self._next.broadcast is not None:
            raise StateDeclarationError(f"input {name!r}: the stage has a second input already")
        if not isinstance(name, str) or not name.isidentifier():
            raise StateDeclarationError(f"the name of an input is an identifier such as rules, found {name!r}")

    def process(
        self,
        name: str,
        function: ProcessFunction,
        schema: Schema | None = None,
        *,
        side_outputs: Mapping[str, Schema] | None = None,
        late_output: str | None = None,
    ) -> Self:
        """Add a stage: `function`, whose output has `schema`. Its state is known by `name`, for good."""
        then = self._next
        if then.input is None:
            raise StateDeclarationError(f"stage {name!r}: say by what it is keyed: key_by(…).process(…)")
        if then.second is not None and (then.second[1].event_time is None) != (then.input.event_time is None):
            raise StateDeclarationError(f"stage {name!r}: either both inputs have an event time, or none")
        sides = {side: as_row_type(given, f"side output {side!r}") for side, given in (side_outputs or {}).items()}
        stage = StagePlan(
            name=name,
            function=function,
            input=then.input,
            second=then.second,
            broadcast=then.broadcast,
            output=as_row_type(schema, f"stage {name!r}"),
            side_outputs={side: given for side, given in sides.items() if given is not None},
            late_output=late_output,
            out_of_orderness=then.out_of_orderness,
            idle_timeout=then.idle_timeout,
        )
        before = self._plan.stages
        if before and before[-1].output is not None:
            stage.input.with_columns(before[-1].output, f"stage {name!r}")
        return self._with(dataclasses.replace(self._plan, stages=(*before, stage)), _Next())

    def window(
        self,
        assigner: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        allowed_lateness: Duration = "0 seconds",
        late_output: str | None = None,
    ) -> WindowedStage[Self]:
        """Put the rows of every key into windows; `reduce`, `aggregate` or `process` adds the stage."""
        rows = window(assigner, trigger=trigger, allowed_lateness=allowed_lateness, late_output=late_output)
        if assigner.is_event_time and (self._next.input is None or self._next.input.event_time is None):
            kind = type(assigner).__name__
            raise StateDeclarationError(f"{kind} need an event time: key_by(…).event_time(…).window(…)")

        def add(name: str, function: ProcessFunction, schema: Schema, sides: Mapping[str, Schema] | None) -> Any:
            return self.process(name, function, schema, side_outputs=sides, late_output=late_output)

        return WindowedStage(rows, add)

    # -- where it goes, and where it comes from -------------------------------------------------------------

    def sink(self, sink: Sink) -> Self:
        """Have `sink(df, batch_id)` called with the output of the last stage, once per batch.

        If the driver dies before Spark knows that it was called, it is called again with the same rows and id.
        """
        return self._with(dataclasses.replace(self._plan, sink=checked_sink(sink)))

    def side_sink(self, output: str, sink: Sink, *, stage: str | None = None) -> Self:
        """The same for a side output, by default of the last stage that has one of this name."""
        found = [
            one.name for one in self._plan.stages
            if (output in one.side_outputs or output == one.late_output) and stage in (None, one.name)
        ]  # fmt: skip
        if not found:
            raise StateDeclarationError(f"there is no side output {output!r} in {stage or 'any stage'}")
        sinks = {**self._plan.side_sinks, (found[-1], output): checked_sink(sink)}
        return self._with(dataclasses.replace(self._plan, side_sinks=sinks))

    def listener(self, listener: Listener) -> Self:
        """Have `listener(progress)` called after every batch."""
        listeners = (*self._plan.listeners, checked_listener(listener))
        return self._with(dataclasses.replace(self._plan, listeners=listeners))

    def from_savepoint(
        self, name: str, *, source_position: str | None = None, location: StateBackend | None = None
    ) -> Self:
        """Start from a savepoint, unless the job has checkpoints already.

        Where the source goes on must be said: `source_position` repeats the stored position, which the message of
        the refusal and `emberstate checkpoints show` print, or is "elsewhere".
        """
        start = SavepointStart(name, location, source_position)
        return self._with(dataclasses.replace(self._plan, savepoint=start))

    def starting_empty_at(self, batch: int) -> Self:
        """Start without any state at this batch of a query that has run before, unless the job has checkpoints.

        A query at any other batch but 0 that finds no state is refused: its state was elsewhere, or is lost.
        """
        if type(batch) is not int or batch < 0:
            raise StateDeclarationError(f"starting_empty_at takes the number of a batch, found {batch!r}")
        return self._with(dataclasses.replace(self._plan, first_batch=batch))

    def restore(
        self,
        stage: str | None = None,
        *,
        drop_states: tuple[str, ...] | list[str] = (),
        keep_states: tuple[str, ...] | list[str] = (),
        rename_states: Mapping[str, str] | None = None,
        rename_fields: Mapping[str, Mapping[str, str]] | None = None,
        drop_stages: tuple[str, ...] | list[str] = (),
    ) -> Self:
        """What becomes of stored state that the program does not have any more, or has under another name.

        Calls add up; what contradicts each other is refused.
        """
        stages = self._plan.stages
        if stage is None and len(stages) == 1:
            stage = stages[0].name
        choices = RestoreChoices(drop_states, keep_states, rename_states or {}, rename_fields or {})
        if choices != NO_CHOICES:
            if stage not in [one.name for one in stages]:
                raise StateDeclarationError(f"restore(stage, …): which stage? There are {[one.name for one in stages]}")
            stages = tuple(
                dataclasses.replace(one, choices=one.choices.plus(choices)) if one.name == stage else one
                for one in stages
            )
        dropped = (*self._plan.drop_stages, *names_in(drop_stages, "drop_stages"))
        return self._with(dataclasses.replace(self._plan, stages=stages, drop_stages=dropped))

    # -- running --------------------------------------------------------------------------------------------

    @property
    def last_progress(self) -> Progress | None:
        """What became of the last batch."""
        runner = self._runner
        return None if runner is None else runner.last_progress

    @property
    def last_error(self) -> Exception | None:
        """What the last batch of a stream failed with; None if it did not fail."""
        return self._error

    def inputs(self, first: DataFrame, **others: DataFrame) -> DataFrame:
        """All inputs in one DataFrame, for `writeStream.foreachBatch(pipeline)`; checks their columns."""
        for frame in (first, *others.values()):
            refuse_connect(frame)
        name = self._plan.other_input
        if set(others) != ({name} if name is not None else set()):
            raise StateDeclarationError(
                f"pipeline {self.name!r} has {'no second input' if name is None else f'the second input {name!r}'}, "
                f"found {sorted(others)}"
            )
        self._check_columns(first, others)
        return first if name is None else tagged(first, others[name])

    def _check_columns(self, first: DataFrame, others: Mapping[str, DataFrame]) -> None:
        self._plan.check_complete()
        row_types = {name: row_type_of_frame(frame.schema, f"input {name!r}") for name, frame in others.items()}
        self._plan.stages[0].spec(
            row_type_of_frame(first.schema, f"pipeline {self.name!r}"),
            row_types,
            parallelism=1,
            max_parallelism=self._plan.max_parallelism,
        )

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Run one micro-batch: what `foreachBatch` calls."""
        self._batch(df, batch_id, None)

    def _batch(self, df: DataFrame, batch_id: int, ticks: Ticks | None) -> None:
        refuse_connect(df)
        self._error = None
        where = f"pipeline {self.name!r}, batch {batch_id}"
        try:
            self._run_batch(df, batch_id, ticks)
        except Exception as error:
            self._error = error.located(batch=batch_id) if isinstance(error, EmberstateError) else error
            if was_stopped(error):
                _log.info("%s: the query was stopped", where)
            else:
                _log.error("%s failed: %s", where, one_line(error))
            shown = cause_first(error, where)
            raise shown from shown.__cause__

    def _run_batch(self, df: DataFrame, batch_id: int, ticks: Ticks | None) -> None:
        position = source_position(df.sparkSession, batch_id)
        with contextlib.nullcontext() if ticks is None else ticks.cleared_on_failure():
            with self._lock:
                runner = self._runner
                if runner is None or position.run != self._run_id:
                    runner = self._take_over(df, batch_id, position, runner)
            if ticks is None:
                runner.run_batch(df, batch_id, position)
            else:
                ticks.check_source()
                ended = ticks.end_input(position.offsets, runner.last_batch)
                runner.run_batch(df, batch_id, position, ended=ended)
                ticks.follow(runner.last_batch)
        if runner.waiting_timers and (ticks is None or not ticks.heartbeat) and not self._told:
            self._told = True
            _log.warning(
                "Pipeline %r has processing-time timers that wait for data: Spark starts no batch without. Start it "
                "with pipeline.start(df, checkpoint=…, heartbeat=…) to have them fire on an idle stream",
                self.name,
            )

    def _take_over(
        self, df: DataFrame, batch_id: int, position: SourcePosition, before: BatchRunner | None
    ) -> BatchRunner:
        """Open the job for a run of a query, with the first batch of which it was called."""
        if before is not None:
            before.close()
        self._warn(df.sparkSession)
        self._plan.check_complete()
        first, others = self._row_types(df)
        self._runner = BatchRunner(
            self._plan, df.sparkSession, first, others, self._plan.backend, batch_id, position
        )
        self._run_id = position.run
        return self._runner

    def _row_types(self, df: DataFrame) -> tuple[RowType, dict[str, RowType]]:
        name, where = self._plan.other_input, f"pipeline {self.name!r}"
        if name is None:
            return row_type_of_frame(df.schema, where), {}
        if df.columns != ["__input", "__row0", "__row1"]:
            raise StateDeclarationError(
                f"{where} has a second input {name!r}: give foreachBatch the DataFrame that pipeline.inputs(df, "
                f"{name}=…) makes; found columns {df.columns}"
            )
        types: list[Any] = [df.schema[column].dataType for column in ("__row0", "__row1")]
        return row_type_of_frame(types[0], where), {name: row_type_of_frame(types[1], f"input {name!r}")}

    def _warn(self, spark: SparkSession) -> None:
        if not self._warned:
            self._warned = True
            for line in missing_settings(spark):
                _log.warning("Pipeline %r: the Spark session's %s", self.name, line)

    def start(
        self,
        df: DataFrame,
        *,
        checkpoint: str,
        heartbeat: Duration | None = None,
        inputs: Mapping[str, DataFrame] | None = None,
        trigger: Mapping[str, Any] | None = None,
        query_name: str | None = None,
        at_end: AtEnd = "wait",
    ) -> StreamingQuery:
        """Start a stream through this pipeline, with Spark's own checkpoint location (source offsets) at `checkpoint`.

        With a `heartbeat`, a stream without data still has a batch so often, in which timers fire and what has expired
        goes. `inputs` are the other inputs by name; `trigger` is what `DataStreamWriter.trigger` takes.

        With `trigger={"availableNow": True}`, the last batch closes all windows that the watermark of the last rows
        has got to. The others wait for the next start; with `at_end="close"` they close too, and the job takes no more
        rows.
        """
        refuse_connect(df)
        if not df.isStreaming:
            raise StateDeclarationError("start() takes a streaming DataFrame; run() takes a static one")
        frame = self.inputs(df, **(inputs or {}))
        ticks = ticks_of(self._plan, df.sparkSession, checkpoint, heartbeat, trigger, at_end)
        if ticks is not None:
            frame = ticks.added_to(frame)
            found = find_latest(self._plan.backend.open_storage(), self.name).manifest
            ticks.follow(None if found is None else found.batch)
        writer = frame.writeStream.foreachBatch(functools.partial(self._batch, ticks=ticks))
        writer = writer.option("checkpointLocation", checkpoint)
        if trigger is not None:
            writer = writer.trigger(**trigger)
        if query_name is not None:
            writer = writer.queryName(query_name)
        return writer.start()

    def run(
        self,
        df: DataFrame,
        *,
        inputs: Mapping[str, DataFrame] | None = None,
        batches: int = 1,
        savepoint: str | None = None,
        save_as: str | None = None,
        at_end: AtEnd | None = None,
    ) -> list[Progress]:
        """Run a static DataFrame through the same code, from no state or from a savepoint's.

        The stream's checkpoints are not touched. The sink gets batch 0, and 1, 2 … if the rows are split into
        `batches`. With `at_end="close"`, the default, all windows close at the end and all event-time timers fire;
        processing-time timers do not. With `save_as`, the state is saved under that name, and a stream may go on from
        it: then the default is `at_end="wait"`, and what is open stays so.
        """
        from emberstate.spark.static_run import run_static

        refuse_connect(df)
        if df.isStreaming:
            raise StateDeclarationError("run() takes a static DataFrame; start() takes a stream")
        if at_end not in (None, "wait", "close") or (at_end == "close" and save_as is not None):
            raise StateDeclarationError(
                f"at_end is 'wait' or 'close', and 'wait' with save_as: a stream cannot go on where all windows are "
                f"closed; found {at_end!r}"
            )
        self._warn(df.sparkSession)
        frame = self.inputs(df, **(inputs or {}))
        types = self._row_types(frame)
        close = save_as is None if at_end is None else at_end == "close"
        return run_static(
            self._plan, frame, types, batches=batches, savepoint=savepoint, save_as=save_as, close=close
        )

    def savepoint(self, name: str) -> None:
        """Copy the latest checkpoint of the running stream, whole, to a savepoint of that name."""
        runner = self._runner
        if runner is None:
            raise LifecycleError(
                f"pipeline {self.name!r} does not run here: use `emberstate savepoint create` on its location"
            )
        runner.savepoint(name)
