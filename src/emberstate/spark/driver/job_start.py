"""Opens a pipeline's job: its stages with their columns, and the coordinator of its checkpoints.

Thread safety: the driver's thread. Only `open_job` writes.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.batch_order import check_order
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from emberstate.checkpoint.commit.starting_point import find_latest
from emberstate.checkpoint.manifest.catalogue import read_savepoint
from emberstate.checkpoint.manifest.model import Manifest, Stage
from emberstate.errors import RestoreRefusedError
from emberstate.runtime.operator.slot import broadcast_operator_name
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.outputs import MAIN
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.combined_frame import CombinedFrame, combined_frame
from emberstate.spark.driver.kafka_offsets import begins_elsewhere
from emberstate.spark.driver.recorded_outputs import delivered_as
from emberstate.spark.driver.source_position import SourcePosition, offsets_before
from emberstate.spark.plan.aggregate_stage import AggregateStagePlan
from emberstate.spark.plan.pipeline import PipelinePlan, SavepointStart
from emberstate.storage.interface import Storage

_log = logging.getLogger("emberstate.spark")


def stage_specs(
    plan: PipelinePlan,
    row_types: Sequence[Mapping[str, RowType]],
    input: RowType,
    others: Mapping[str, RowType],
    parallelism: int,
) -> list[StageSpec]:
    """The stages, each with the columns of its input; `row_types` has the outputs of the stages."""
    specs, rows = [], input
    timed = plan.event_time_stage
    follows = [
        timed is not None and number > timed and stage.has_event_time for number, stage in enumerate(plan.stages)
    ]
    for number, stage in enumerate(plan.stages):
        spec = stage.spec(rows, others, parallelism=parallelism, max_parallelism=plan.max_parallelism)
        if follows[number]:
            spec = stage.of_held_rows(spec, rows)
        followed = any(follows[number + 1 : number + 2])
        specs.append(
            dataclasses.replace(
                spec,
                follows=follows[number],
                followed=followed,
                inputs_in_step=plan.bounded,
                follows_event_time=timed is not None,
            )
        )
        rows = row_types[number].get(MAIN, rows)
    return specs


def combined_frames(
    plan: PipelinePlan, specs: Sequence[StageSpec], row_types: Sequence[Mapping[str, RowType]], input: RowType
) -> list[CombinedFrame | None]:
    """How rows become partial rows, of each stage that has declared aggregates."""
    frames: list[CombinedFrame | None] = []
    rows = input
    for stage, spec, types in zip(plan.stages, specs, row_types, strict=True):
        if isinstance(stage, AggregateStagePlan):
            frames.append(combined_frame(stage, rows, follows=spec.follows))
        else:
            frames.append(None)
        rows = types.get(MAIN, rows)
    return frames


def open_job(
    plan: PipelinePlan,
    specs: Sequence[StageSpec],
    stages: Sequence[Stage],
    backend: StateBackend,
    batch: int,
    position: SourcePosition,
) -> tuple[CheckpointCoordinator, Manifest | None]:
    """Take the job over, from its latest checkpoint, which is returned too, or, if it has none, the plan's savepoint.

    A first batch that does not fit the checkpoint is rejected before that, so that nothing is written.
    """
    operators = []
    for stage, spec in zip(plan.stages, specs, strict=True):
        template = spec.open_template()
        operators += spec.operator_specs(template, stage.choices)
        template.close()
    storage = backend.open_storage()
    found = find_latest(storage, plan.name).manifest
    savepoint = None
    if plan.savepoint is not None and found is None:
        savepoint = _checked_savepoint(plan.savepoint, backend, position, batch)
    else:
        check_order(found, batch, position.query, position.offsets, first=plan.first_batch, where=storage.describe())
    if found is not None:
        _warn_of_idle_option(plan, storage)
        if found.batch is not None and found.batch.id == batch:
            delivered_as(storage, found, stages, [one.name for one in operators])
    coordinator = CheckpointCoordinator.open(
        storage,
        plan.name,
        operators,
        clock=plan.clock,
        policy=plan.policy,
        retained=plan.retained,
        savepoint=savepoint,
        stages=stages,
        first_batch=plan.first_batch,
        drop_operators=[name for stage in plan.drop_stages for name in (stage, broadcast_operator_name(stage))],
    )
    return coordinator, found


def _warn_of_idle_option(plan: PipelinePlan, storage: Storage) -> None:
    """Warn that a way to start has no effect, since the job resumes from its own checkpoints."""
    if plan.savepoint is not None or plan.first_batch:
        start = plan.savepoint
        idle = f"starting_empty_at({plan.first_batch})" if start is None else f"savepoint {start.name!r}"
        _log.warning(
            "Pipeline %r resumes from its own checkpoints in %s; %s has no effect", plan.name, storage.describe(), idle
        )


def _checked_savepoint(
    start: SavepointStart, backend: StateBackend, resumes: SourcePosition, batch: int
) -> tuple[Storage, str]:
    """The savepoint's storage and name; raises unless the source resumes at its position.

    A query that has run before begins at a position of its own, and one of Kafka where its source was told to.
    """
    begins_at = offsets_before(resumes, batch)
    storage = (start.location or backend).open_storage()
    stored = read_savepoint(storage, start.name).times
    position = None if stored is None else stored.source
    if start.source_position == "elsewhere":
        return storage, start.name
    if position is not None and start.source_position != position:
        raise RestoreRefusedError(
            f"savepoint {start.name!r} was taken at source position {position!r}, got "
            f"source_position={start.source_position!r}. Start the new query's source there (as by startingOffsets) "
            f"and repeat the position in from_savepoint(…, source_position=…); or write source_position='elsewhere' if "
            f"rows may be missed or counted twice, or the source is another one.",
            option="source_position",
            expected=position,
            found=start.source_position,
        )
    if begins_at not in (None, position):
        raise RestoreRefusedError(
            f"savepoint {start.name!r} was taken at source position {position!r}, and the query, which has run before, "
            f"resumes at {begins_at!r}: the state of the rows between is not here. If the location is wrong, give the "
            f"one that the query had; or start a new query at the savepoint's position; or write "
            f"source_position='elsewhere', if those rows may be missed or counted twice."
        )
    if batch == 0 and position is not None and (differing := begins_elsewhere(resumes, position)) is not None:
        found, expected = differing
        raise RestoreRefusedError(
            f"savepoint {start.name!r} was taken at Kafka's offsets {json.dumps(expected)}, and the query begins at "
            f"{json.dumps(found)}. Give the source .option('startingOffsets', {json.dumps(expected)!r}), with -2 for "
            f"partitions that were added since, and the query a new checkpoint; or write source_position='elsewhere', "
            f"if rows may be missed or counted twice.",
            option="startingOffsets",
            expected=expected,
            found=found,
        )
    return storage, start.name
