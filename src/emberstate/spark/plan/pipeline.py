"""`PipelinePlan`: a pipeline as declared. `Pipeline` makes it, a `BatchRunner` runs it.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.retention import DEFAULT_RETAINED
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy
from emberstate.clock import Clock, SystemClock
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import DEFAULT_MAX_PARALLELISM, check_max_parallelism
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import RowType
from emberstate.sinks.interface import Sink
from emberstate.spark.plan.stage import KeyedStagePlan
from emberstate.spark.progress import Progress
from emberstate.units import Duration, as_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SinkFunction = Callable[["DataFrame", int], Any]
AnySink = Sink | SinkFunction
Listener = Callable[[Progress], Any]


def sink_name(sink: AnySink) -> str:
    """The sink, for messages."""
    return repr(sink) if isinstance(sink, Sink) else getattr(sink, "__qualname__", type(sink).__qualname__)


def _promise(sink: AnySink) -> str:
    return f"{sink_name(sink)}: {sink.promise if isinstance(sink, Sink) else 'at-least-once'}"


@dataclasses.dataclass(frozen=True, slots=True)
class SavepointStart:
    """The savepoint that a job without checkpoints starts from."""

    name: str
    #: Where the savepoint is; None: at the job's own location.
    location: StateBackend | None
    #: Where the source resumes: the stored position, repeated, or "elsewhere".
    source_position: str | None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePlan:
    """A declared pipeline."""

    name: str
    backend: StateBackend
    parallelism: int | None = None
    max_parallelism: int = DEFAULT_MAX_PARALLELISM
    retained: int = DEFAULT_RETAINED
    slot_idle: Duration = "10 minutes"
    slot_stall: Duration = "5 minutes"
    policy: ChainPolicy = DEFAULT_POLICY
    clock: Clock = dataclasses.field(default_factory=SystemClock)
    stages: tuple[KeyedStagePlan, ...] = ()
    #: The input is finite and comes in order of time: no row is older than one that has come, of either input.
    bounded: bool = False
    #: Those of the last stage's main output.
    sinks: tuple[AnySink, ...] = ()
    #: By stage and output.
    side_sinks: Mapping[tuple[str, str], tuple[AnySink, ...]] = dataclasses.field(default_factory=dict)
    listeners: tuple[Listener, ...] = ()
    savepoint: SavepointStart | None = None
    #: The batch of its query at which the job may start without state.
    first_batch: int = 0
    drop_stages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_max_parallelism(self.max_parallelism)
        if self.parallelism is not None and (
            type(self.parallelism) is not int or not 1 <= self.parallelism <= self.max_parallelism
        ):
            raise StateDeclarationError(
                f"pipeline {self.name!r}: expected parallelism from 1 to max_parallelism, "
                f"{self.max_parallelism}, got {self.parallelism!r}",
                option="parallelism",
            )
        if not isinstance(self.backend, StateBackend):
            raise StateDeclarationError(
                f"pipeline {self.name!r}: expected a state backend such as FsStateBackend('s3://…'), got "
                f"{self.backend!r}",
                option="state_backend",
            )
        for name in ("slot_idle", "slot_stall"):
            if as_duration(getattr(self, name), name).total_seconds() <= 0:
                raise StateDeclarationError(f"{name} must be positive, got {getattr(self, name)!r}", option=name)
        if self.savepoint is not None and self.first_batch:
            raise StateDeclarationError(
                f"pipeline {self.name!r} has from_savepoint({self.savepoint.name!r}) and starting_empty_at("
                f"{self.first_batch}): write one of from_savepoint and starting_empty_at",
                option="starting_empty_at",
            )
        names = [stage.name for stage in self.stages]
        if len(set(names)) != len(names):
            what = f"stages need different names, got {names}: their state is stored under them"
            raise StateDeclarationError(what, found=names)
        for name in set(names) & set(self.drop_stages):
            raise StateDeclarationError(
                f"pipeline {self.name!r} has a stage {name!r} and drops its state by drop_stages: remove one of them",
                operator=name,
                option="drop_stages",
            )

    @property
    def other_input(self) -> str | None:
        """The name of the second input, connected or broadcast."""
        if not self.stages:
            return None
        first = self.stages[0]
        return first.broadcast if first.second is None else first.second[0]

    @property
    def event_time_stage(self) -> int | None:
        """The number of the stage that the watermark comes from: the first with event time."""
        return next((number for number, stage in enumerate(self.stages) if stage.has_event_time), None)

    def sinks_of(self, output: tuple[str, str]) -> tuple[AnySink, ...]:
        """The sinks of an output, by stage and name."""
        if self.stages and output == (self.stages[-1].name, MAIN):
            return self.sinks
        return self.side_sinks.get(output, ())

    def promises(self) -> dict[str, list[str]]:
        """What the sinks of every output promise, for people."""
        found = {MAIN: self.sinks, **{name: sinks for (_, name), sinks in self.side_sinks.items()}}
        return {name: [_promise(sink) for sink in sinks] for name, sinks in found.items() if sinks}

    def check_complete(self) -> None:
        """Raise if the pipeline cannot run on a stream."""
        self.check_stages()
        if not self.sinks:
            raise StateDeclarationError(
                f"pipeline {self.name!r} has no sink: add .sink(es.sinks.console()), or a function, "
                f".sink(lambda df, batch_id: …), which may do nothing",
                option="sink",
            )

    def check_stages(self) -> None:
        """Raise if the stages do not make a whole."""
        if not self.stages:
            what = f"pipeline {self.name!r} has no stage: add key_by(…).process(…)"
            raise StateDeclarationError(what, option="process")
        for stage in self.stages[:-1]:
            if not stage.has_output:
                raise StateDeclarationError(
                    f"stage {stage.name!r} needs schema=…: the next stage reads its output", operator=stage.name
                )

    def row_types(self, first: RowType) -> list[dict[str, RowType]]:
        """The outputs of every stage, by name."""
        types, rows = [], first
        for stage in self.stages:
            types.append(stage.row_types(rows))
            rows = types[-1].get(MAIN, rows)
        return types
