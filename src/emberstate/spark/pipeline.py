"""`Pipeline`: keyed stages with state, and the sinks of their output; what a user builds.

Thread safety: building, any thread. As a callable, the thread of one query's batches at a time; see `query_runner`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from emberstate._html import table_html
from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.retention import DEFAULT_RETAINED
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy
from emberstate.checkpoint.restore.choices import NO_CHOICES, RestoreChoices, names_in
from emberstate.clock import Clock, SystemClock
from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM
from emberstate.runtime.aggregates.declarations import Aggregate
from emberstate.runtime.aggregates.emission import Emit
from emberstate.runtime.functions.function import ProcessFunction
from emberstate.runtime.rows.row import RowType
from emberstate.runtime.windows import Trigger, WindowAssigner, window
from emberstate.spark.driver.callbacks import checked_listener, checked_sinks
from emberstate.spark.driver.combined_frame import needed_columns
from emberstate.spark.driver.job_start import stage_specs
from emberstate.spark.driver.keyed_frame import input_row_types, only_needed, tagged
from emberstate.spark.heartbeat import AtEnd
from emberstate.spark.plan.next_stage import NextStage
from emberstate.spark.plan.pipeline import AnySink, Listener, PipelinePlan, SavepointStart
from emberstate.spark.plan.stage import KeyedStagePlan, NullKeys, row_type_of_frame
from emberstate.spark.plan.windowed_stage import AllWindowedStage, WindowedStage
from emberstate.spark.progress import Progress
from emberstate.spark.query_runner import QueryRunner
from emberstate.spark.spark_session import NO_CONNECT, refuse_unsupported
from emberstate.units import Duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from emberstate.spark.plan.next_stage import Schema
    from emberstate.spark.run_result import RunResult


class Pipeline:
    """Keyed stages over a stream or a DataFrame, and the sinks of their output.

    A pipeline is an immutable value: every method that declares something returns a new pipeline.

    >>> import emberstate as es
    >>> class Count(es.KeyedProcessFunction):
    ...     seen = es.value_state(int, default=0)
    ...
    ...     def process_element(self, row, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    ...         yield row.card, self.seen.value()
    >>> counts = (
    ...     es.Pipeline("counts", es.MemoryStateBackend())
    ...     .key_by("card")
    ...     .process("count", Count(), schema="card string, seen bigint")
    ...     .sink(lambda df, batch_id: df.show())
    ... )
    >>> counts
    Pipeline('counts', stages=['count'], sinks={'main': ['<lambda>: at-least-once']})

    `start` runs it on a stream, `run` on a static DataFrame. It can also be called by Spark itself:
    `df.writeStream.foreachBatch(pipeline)`.
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
        """Declare a pipeline; its state is that of job `name` at the backend's location.

        Args:
            name: The name of the job. A job resumes from the checkpoints of its name at the location.
            backend: Where state lives and where its checkpoints go, such as `FsStateBackend("s3://bucket/job")`.
            parallelism: The number of slots; by default Spark's default parallelism. May change from start to start.
            max_parallelism: The number of key groups. Fixed with the job's first checkpoint.
            retained: How many checkpoints are kept.
            slot_idle: A slot without work ends after this time, and restores its state when there is work again.
            slot_stall: A slot that makes no progress for this time (no row or timer done, nothing read or written) is
                killed, and Spark runs its task again.
            policy: When deltas are merged and bases are written.
            clock: The source of processing time; a `ManualClock` in tests.
        """
        self._plan = PipelinePlan(
            name=name, backend=backend, parallelism=parallelism, max_parallelism=max_parallelism, retained=retained,
            slot_idle=slot_idle, slot_stall=slot_stall, policy=policy, clock=SystemClock() if clock is None else clock,
        )  # fmt: skip
        self._next = NextStage()
        self._runner = QueryRunner(self._plan)

    def _with(self, plan: PipelinePlan | None = None, then: NextStage | None = None) -> Self:
        made = object.__new__(type(self))
        made._plan = self._plan if plan is None else plan
        made._next = self._next if then is None else then
        made._runner = QueryRunner(made._plan)
        return made

    def __reduce__(self) -> Any:
        raise StateDeclarationError(
            f"pipeline {self.name!r} cannot be pickled, as foreachBatch of Spark Connect does: {NO_CONNECT}",
            found="Spark Connect",
        )

    def __repr__(self) -> str:
        promises = self._plan.promises()
        sinks = f", sinks={promises}" if promises else ""
        return f"Pipeline({self._plan.name!r}, stages={[stage.name for stage in self._plan.stages]}{sinks})"

    def _repr_html_(self) -> str:
        """Its stages and sinks as a table, in a notebook."""
        plan = self._plan
        rows: list[tuple[Any, ...]] = [
            ("stage", stage.name, type(getattr(stage, "function", stage)).__name__, ", ".join(stage.input.key_columns),
             stage.input.event_time)
            for stage in plan.stages
        ]  # fmt: skip
        rows += [("sink", output, sink, None, None) for output, sinks in plan.promises().items() for sink in sinks]
        columns = ("", "name", "what", "key", "event time")
        return table_html(f"Pipeline {plan.name}, {plan.backend!r}", columns, rows, len(rows))

    @property
    def name(self) -> str:
        """The job's name."""
        return self._plan.name

    # -- stages ---------------------------------------------------------------------------------------------

    def key_by(self, *columns: str, null_keys: NullKeys = "refuse") -> Self:
        """Key the rows of the next stage by these columns: every key has its own state.

        A row with a null in one of them fails the batch, or, with `null_keys="drop"`, is dropped and counted in
        `Progress.null_keys`.

        >>> import emberstate as es
        >>> by_card = es.Pipeline("cards", es.MemoryStateBackend()).key_by("card", "country")
        """
        return self._with(then=self._next.keyed_by(columns, null_keys))

    def event_time(
        self,
        column: str,
        out_of_orderness: Duration = "0 seconds",
        *,
        zone: str | None = None,
        idle_timeout: Duration | None = None,
    ) -> Self:
        """Give the next stage event time: it sees the rows of a batch in order of this column.

        The watermark follows the latest row by `out_of_orderness`; a row behind it is late. A TIMESTAMP_NTZ column
        needs the `zone` of its readings. Without rows the watermark stands still, unless `idle_timeout` is given: after
        that time it advances at the pace of the clock.

        >>> import emberstate as es
        >>> timed = es.Pipeline("cards", es.MemoryStateBackend()).key_by("card").event_time("ts", "10 seconds")
        """
        return self._with(then=self._next.timed_by(column, out_of_orderness, zone, idle_timeout))

    def connect(
        self,
        name: str,
        *columns: str,
        event_time: str | None = None,
        out_of_orderness: Duration | None = None,
        zone: str | None = None,
        idle_timeout: Duration | None = None,
        input_columns: Sequence[str] | None = None,
    ) -> Self:
        """Add a second input, keyed by `columns`, to the first stage, for a `KeyedCoProcessFunction`.

        The types of the keys must be the same. The watermark is that of the input which is behind. `out_of_orderness`
        and `idle_timeout` default to those of the first input. `input_columns` says of this input what `columns` of
        `process` says of the first. `start` and `run` get the second input by its name:
        `pipeline.start(payments, inputs={"refunds": refunds}, checkpoint=…)`.

        >>> import emberstate as es
        >>> both = es.Pipeline("cards", es.MemoryStateBackend()).key_by("card").connect("refunds", "card_number")
        """
        self._check_first(name)
        second = self._next.connected(
            name,
            columns,
            event_time=event_time,
            out_of_orderness=out_of_orderness,
            zone=zone,
            idle_timeout=idle_timeout,
            input_columns=input_columns,
        )
        return self._with(then=second)

    def broadcast(self, name: str) -> Self:
        """Add an input to the first stage whose rows every slot gets, for a `KeyedBroadcastProcessFunction`.

        `start` and `run` get the input by its name: `pipeline.start(payments, inputs={"rules": rules}, checkpoint=…)`.

        >>> import emberstate as es
        >>> ruled = es.Pipeline("cards", es.MemoryStateBackend()).key_by("card").broadcast("rules")
        """
        self._check_first(name)
        return self._with(then=self._next.with_broadcast(name))

    def _check_first(self, name: str) -> None:
        if self._plan.stages:
            raise StateDeclarationError(
                f"input {name!r}: a second input belongs to the first stage; later stages read the one before"
            )

    def process(
        self,
        name: str,
        function: ProcessFunction,
        schema: Schema | None = None,
        *,
        side_outputs: Mapping[str, Schema] | None = None,
        late_output: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Self:
        """Add a stage that calls `function` for every row, with the state of the row's key.

        Rows come as the type that annotates `row`, if that is a dataclass, a NamedTuple or a `msgspec.Struct`: its
        fields are checked against the input's columns, and no other columns travel to the slots.

        Args:
            name: The name of the stage. Its state is stored under it, so it must not change.
            function: A `KeyedProcessFunction`, or a `KeyedCoProcessFunction` after `connect`, or a
                `KeyedBroadcastProcessFunction` after `broadcast`.
            schema: The columns of the rows that the function yields: "card string, seen bigint", a StructType, a
                `RowType`, or a dataclass, NamedTuple or Struct. None: those of `Alert` for a
                `KeyedProcessFunction[Payment, str, Alert]`; any other function yields nothing then.
            side_outputs: The columns of further outputs, by name; `ctx.output(name, row)` emits to them.
            late_output: The side output that gets late rows; without it, and without `process_late_element`, they are
                dropped, counted and logged once. It takes them with all columns, so all columns travel.
            columns: The columns that rows have for a function whose annotations do not say it; by default all.
        """
        return self._added(self._next.stage(name, function, schema, side_outputs or {}, late_output, columns))

    def _added(self, stage: KeyedStagePlan) -> Self:
        before = self._plan.stages
        known = before[-1].declared_output if before else None
        if known is not None:
            stage.spec(known, {}, parallelism=1, max_parallelism=self._plan.max_parallelism)
        return self._with(dataclasses.replace(self._plan, stages=(*before, stage)), NextStage())

    def aggregate(self, name: str, /, *, emit: Emit | None = None, **aggregates: Aggregate) -> Self:
        """Add a stage with declared aggregates of all rows of a key so far.

        The output has the key's columns and a column per aggregate; nothing has to be typed again. Spark combines the
        rows of a batch before they travel to the slots.

        Args:
            name: The name of the stage. Its state is stored under it, so it must not change.
            emit: "changed", the default: every key that changed, once per batch. `es.every("1 minute")`: less often.
            aggregates: The aggregates, by the names of their columns. Late rows count like others.

        >>> import emberstate as es
        >>> totals = (
        ...     es.Pipeline("cards", es.MemoryStateBackend())
        ...     .key_by("card")
        ...     .aggregate("totals", n=es.count(), total=es.sum("amount"), shop=es.last("shop"))
        ... )
        """
        if not self._next.has_key:
            raise StateDeclarationError(
                f"stage {name!r} has no key: write key_by(…) before aggregate(…), or window_all(…) for all rows",
                operator=name,
            )
        return self._added(self._next.aggregate_stage(name, aggregates, window=None, emit=emit))

    def window(
        self,
        assigner: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        allowed_lateness: Duration = "0 seconds",
        late_output: str | None = None,
    ) -> WindowedStage[Self]:
        """Put the rows of every key into windows. `reduce`, `aggregate` or `process` of the result adds the stage.

        The `trigger` defaults to that of the assigner. A row is dropped, or goes to `late_output`, once the watermark
        has passed the end of its window by `allowed_lateness`.

        >>> import emberstate as es
        >>> hourly = (
        ...     es.Pipeline("cards", es.MemoryStateBackend())
        ...     .key_by("card")
        ...     .event_time("ts", "10 seconds")
        ...     .window(es.TumblingEventTimeWindows.of("1 hour"), allowed_lateness="5 minutes")
        ... )
        """
        rows = window(assigner, trigger=trigger, allowed_lateness=allowed_lateness, late_output=late_output)
        self._check_timed(assigner, "key_by(…).event_time(…).window(…)")

        def add(name: str, function: ProcessFunction, schema: Schema, sides: Mapping[str, Schema] | None) -> Any:
            return self.process(name, function, schema, side_outputs=sides, late_output=late_output)

        def add_aggregates(name: str, aggregates: Mapping[str, Aggregate], emit: Emit | None) -> Any:
            if not self._next.has_key:
                raise StateDeclarationError(
                    f"stage {name!r} has no key: write key_by(…) before window(…), or window_all(…) for all rows",
                    operator=name,
                )
            stage = self._next.aggregate_stage(name, aggregates, window=rows, emit=emit)
            return self._added(stage)

        return WindowedStage(rows, add, add_aggregates)

    def window_all(
        self,
        assigner: WindowAssigner,
        *,
        trigger: Trigger | None = None,
        allowed_lateness: Duration = "0 seconds",
        late_output: str | None = None,
    ) -> AllWindowedStage[Self]:
        """Put all rows, whatever their key, into windows. `aggregate` of the result adds the stage.

        >>> import emberstate as es
        >>> hourly = (
        ...     es.Pipeline("cards", es.MemoryStateBackend())
        ...     .event_time("ts", "10 seconds")
        ...     .window_all(es.TumblingEventTimeWindows.of("1 hour"))
        ...     .aggregate("hourly", n=es.count())
        ... )
        """
        rows = window(assigner, trigger=trigger, allowed_lateness=allowed_lateness, late_output=late_output)
        self._check_timed(assigner, "event_time(…).window_all(…)")
        if self._next.has_key:
            raise StateDeclarationError(
                "window_all(…) takes all rows: leave out key_by(…), or write window(…)", option="window_all"
            )

        def add_aggregates(name: str, aggregates: Mapping[str, Aggregate], emit: Emit | None) -> Any:
            stage = self._next.aggregate_stage(name, aggregates, window=rows, emit=emit)
            return self._added(stage)

        return AllWindowedStage(add_aggregates)

    def _check_timed(self, assigner: WindowAssigner, how: str) -> None:
        if assigner.is_event_time and (self._next.input is None or self._next.input.event_time is None):
            kind = type(assigner).__name__
            raise StateDeclarationError(f"{kind} needs an event time: write {how}", option="event_time")

    # -- sinks, and where it starts -------------------------------------------------------------------------

    def sink(self, sink: AnySink, *others: AnySink) -> Self:
        """Deliver the output of the last stage, once per batch, to a sink of `emberstate.sinks`, or to several.

        A function is a sink, too: it is called as `sink(df, batch_id)`. If the driver dies before Spark has noted the
        batch as done, the function is called again with the same rows and the same id. One that ignores an id it has
        seen delivers every row exactly once.

        >>> import emberstate as es
        >>> def write(df, batch_id):
        ...     df.write.mode("overwrite").parquet(f"/data/counts/batch={batch_id}")
        >>> sunk = es.Pipeline("cards", es.MemoryStateBackend()).sink(write)
        """
        return self._with(dataclasses.replace(self._plan, sinks=checked_sinks((sink, *others))))

    def side_sink(self, output: str, sink: AnySink, *others: AnySink, stage: str | None = None) -> Self:
        """As `sink`, for a side output: of `stage`, or of the last stage that has one of this name."""
        found = [
            one.name for one in self._plan.stages
            if (output in one.side_outputs or output == one.late_output) and stage in (None, one.name)
        ]  # fmt: skip
        if not found:
            what = f"there is no side output {output!r} in {stage or 'any stage'}"
            raise StateDeclarationError(what, operator=stage, option="side_sink", found=output)
        sinks = {**self._plan.side_sinks, (found[-1], output): checked_sinks((sink, *others))}
        return self._with(dataclasses.replace(self._plan, side_sinks=sinks))

    def listener(self, listener: Listener) -> Self:
        """Call `listener(progress)` with the `Progress` of every batch, on the thread of the batches.

        >>> import emberstate as es
        >>> watched = es.Pipeline("cards", es.MemoryStateBackend()).listener(lambda progress: print(progress.rows_in))
        """
        listeners = (*self._plan.listeners, checked_listener(listener))
        return self._with(dataclasses.replace(self._plan, listeners=listeners))

    def from_savepoint(
        self, name: str, *, source_position: str | None = None, location: StateBackend | None = None
    ) -> Self:
        """Start from a savepoint, unless the job has checkpoints already.

        Args:
            name: The savepoint's name.
            source_position: Where the source resumes: the stored position, repeated, which `emberstate checkpoints
                show` and the message of a rejected start print; or "elsewhere", if rows may be missed or counted twice.
            location: The backend at whose location the savepoint is; by default the job's own.
        """
        start = SavepointStart(name, location, source_position)
        return self._with(dataclasses.replace(self._plan, savepoint=start))

    def starting_empty_at(self, batch: int) -> Self:
        """Start without state at this batch of a query that has run before, unless the job has checkpoints.

        Without it, a query that finds no state at a batch other than 0 is rejected: its state is elsewhere, or lost.
        """
        if type(batch) is not int or batch < 0:
            what = f"starting_empty_at: expected the number of a batch, got {batch!r}"
            raise StateDeclarationError(what, option="starting_empty_at")
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
        """Decide about stored state that the program no longer has, or has under another name.

        Args:
            stage: The stage that the choices are for; may be left out if there is one stage.
            drop_states: Stored states to drop.
            keep_states: Stored states to keep in the checkpoints though the program does not declare them.
            rename_states: New names of stored states, by their old ones.
            rename_fields: New names of fields, by state and old name.
            drop_stages: Stored stages to drop with all their state.

        Calls add up; a contradiction raises `StateDeclarationError`.

        >>> import emberstate as es
        >>> class Count(es.KeyedProcessFunction):
        ...     total = es.value_state(int, default=0)
        >>> counts = es.Pipeline("counts", es.MemoryStateBackend()).key_by("card").process("count", Count())
        >>> renamed = counts.restore(rename_states={"seen": "total"})
        """
        stages = self._plan.stages
        if stage is None and len(stages) == 1:
            stage = stages[0].name
        choices = RestoreChoices(drop_states, keep_states, rename_states or {}, rename_fields or {})
        if choices != NO_CHOICES:
            names = [one.name for one in stages]
            if stage not in names:
                raise StateDeclarationError(f"restore: expected a stage of {names}, got {stage!r}", operator=stage)
            stages = tuple(
                dataclasses.replace(one, choices=one.choices.plus(choices)) if one.name == stage else one
                for one in stages
            )
        dropped = (*self._plan.drop_stages, *names_in(drop_stages, "drop_stages"))
        return self._with(dataclasses.replace(self._plan, stages=stages, drop_stages=dropped))

    # -- running --------------------------------------------------------------------------------------------

    @property
    def last_progress(self) -> Progress | None:
        """The progress of the last batch; None before the first."""
        batches = self._runner.batches
        return None if batches is None else batches.last_progress

    @property
    def last_error(self) -> Exception | None:
        """The error that the last batch of a stream failed with; None if it did not fail."""
        return self._runner.last_error

    def inputs(self, first: DataFrame, **others: DataFrame) -> DataFrame:
        """All inputs joined in one DataFrame, for `writeStream.foreachBatch(pipeline)`; checks their columns.

        `start` and `run` do this themselves.
        """
        for frame in (first, *others.values()):
            refuse_unsupported(frame)
        name = self._plan.other_input
        if set(others) != ({name} if name is not None else set()):
            raise StateDeclarationError(
                f"pipeline {self.name!r} has {'no second input' if name is None else f'the second input {name!r}'}, "
                f"got {sorted(others)}"
            )
        row_type = self._check_columns(first, others)
        if name is None:
            return needed_columns(first, self._plan, row_type)
        return tagged(*only_needed(self._plan, first, others[name]))

    def _check_columns(self, first: DataFrame, others: Mapping[str, DataFrame]) -> RowType:
        self._plan.check_stages()
        row_type = row_type_of_frame(first.schema, f"pipeline {self.name!r}")
        row_types = {name: row_type_of_frame(frame.schema, f"input {name!r}") for name, frame in others.items()}
        stage_specs(self._plan, self._plan.row_types(row_type), row_type, row_types, 1)
        return row_type

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        """Run one micro-batch; for `writeStream.foreachBatch(pipeline)`."""
        self._runner.run_batch(df, batch_id)

    @property
    def ui_address(self) -> str | None:
        """Where the web page of `start(…, ui=True)` is; None if there is none."""
        page = self._runner.page
        return None if page is None else page.address

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
        ui: bool = False,
    ) -> StreamingQuery:
        """Start a streaming query through this pipeline.

        Args:
            df: The first input.
            checkpoint: Spark's own checkpoint location, for the source's offsets.
            heartbeat: On a stream without data, run a batch this often, in which timers fire and expired state is
                removed.
            inputs: The other inputs, by name.
            trigger: The arguments of `DataStreamWriter.trigger`.
            query_name: The name of the query in Spark.
            at_end: With `trigger={"availableNow": True}`, the last batch closes the windows that the watermark of the
                last rows has reached; the others wait for the next start. With "close", all windows close, and the job
                takes no more rows.
            ui: Show the job on a web page on this machine, for processes of this user; `pipeline.ui_address` is where.
                Needs the extra `ui`. It lasts as long as the process.

        Returns Spark's query. `pipeline.last_progress` and `pipeline.last_error` tell of its last batch.
        """
        refuse_unsupported(df)
        if not df.isStreaming:
            raise StateDeclarationError("start() takes a streaming DataFrame; run() takes a static one")
        self._plan.check_complete()
        for name, other in (inputs or {}).items():
            if not other.isStreaming:
                raise StateDeclarationError(
                    f"input {name!r} is a static DataFrame, and start() takes streams. Join a static table with the "
                    f"stream before the pipeline: df.join(table, …). Or read it as a stream, with spark.readStream, "
                    f"and have its rows in broadcast or keyed state.",
                    option=name, expected="a stream", found="a static DataFrame",
                )  # fmt: skip
        frame = self.inputs(df, **(inputs or {}))
        if ui:
            self._runner.show_page()
        return self._runner.start(
            frame, checkpoint, heartbeat=heartbeat, trigger=trigger, query_name=query_name, at_end=at_end
        )

    def run(
        self,
        df: DataFrame,
        *,
        inputs: Mapping[str, DataFrame] | None = None,
        batches: int = 1,
        savepoint: str | None = None,
        save_as: str | None = None,
        at_end: AtEnd | None = None,
    ) -> RunResult:
        """Run a static DataFrame through this pipeline, from no state or from a savepoint's.

        The stream's checkpoints are not touched.

        Args:
            df: The first input.
            inputs: The other inputs, by name.
            batches: The number of batches that the rows are split into, by event time; the sinks get batch 0, 1, 2 …
            savepoint: The savepoint to start from, at the job's location.
            save_as: Save the state as a savepoint of this name, for a stream to resume from.
            at_end: With "close", the default, all windows close at the end and all event-time timers fire;
                processing-time timers do not. With "wait", the default with `save_as`, what is open stays open.

        Returns the progress of every batch, as a list, whose `output` has the rows as a DataFrame. So a pipeline needs
        no sink for this.
        """
        from emberstate.spark.static_run import run_static

        refuse_unsupported(df)
        if df.isStreaming:
            raise StateDeclarationError("run() takes a static DataFrame; start() takes a stream")
        if at_end not in (None, "wait", "close") or (at_end == "close" and save_as is not None):
            raise StateDeclarationError(
                f"at_end: expected 'wait' or 'close', and 'wait' with save_as, got {at_end!r}: a stream cannot "
                f"resume where all windows are closed"
            )
        self._runner.check_settings(df.sparkSession)
        frame = self.inputs(df, **(inputs or {}))
        types = input_row_types(self._plan, frame)
        close = save_as is None if at_end is None else at_end == "close"
        return run_static(self._plan, frame, types, batches=batches, savepoint=savepoint, save_as=save_as, close=close)

    def savepoint(self, name: str) -> None:
        """Copy the latest checkpoint of the running stream to a savepoint; for any thread."""
        runner = self._runner.batches
        if runner is None:
            raise LifecycleError(
                f"pipeline {self.name!r} does not run in this process: use `emberstate savepoint create` on its "
                f"location"
            )
        runner.savepoint(name)
