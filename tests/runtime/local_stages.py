"""A pipeline's stages without Spark: real slots, checkpoints and watermarks; rows go on from stage to stage as there.

Between two batches everything in memory can be lost, and the parallelism changed; a batch can be tried, rolled back and
run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa

import emberstate as es
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.keygroups import slot_for_key_group
from emberstate.runtime.operator.slot import OperatorSlot
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.outputs import MAIN, read_output
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.job_start import stage_specs
from emberstate.spark.driver.watermark import idle_since, next_watermark, stage_watermarks
from emberstate.testing.input_batches import batches_by_slot

_POLICY = ChainPolicy(most_files=8, rewrite_at=3)


class LocalStages:
    """Runs the batches of a pipeline, whose input has `schema`; keeps what came out of every stage."""

    def __init__(self, pipeline: es.Pipeline, schema: str, parallelism: int = 1) -> None:
        self._plan, self._schema = pipeline._plan, RowType.of(schema)
        #: By stage and output, in the order in which it came.
        self.outputs: dict[tuple[str, str], list[Any]] = {}
        self.late_rows = 0
        self._slots: list[list[OperatorSlot]] = []
        self.restart(parallelism)

    def restart(self, parallelism: int) -> None:
        """Lose everything but the checkpoints, and go on with so many slots."""
        self.close()
        plan, rows = self._plan, self._schema
        self._specs = stage_specs(plan, plan.row_types(rows), rows, {}, parallelism)
        specs: list[OperatorSpec] = []
        for stage in self._specs:
            template = stage.open_template()
            specs += stage.operator_specs(template)
            template.close()
        self._coordinator = CheckpointCoordinator.open(plan.backend.open_storage(), plan.name, specs, policy=_POLICY)
        self._slots = [[self._new_slot(stage) for _ in range(parallelism)] for stage in self._specs]

    def close(self) -> None:
        """End the slots."""
        for slots in self._slots:
            for slot in slots:
                slot.close()
        self._slots = []

    def held(self, stage: int) -> int:
        """How many places, of keys in time, have rows that a stage holds."""
        return sum(len(slot.operator.backend.timer_queues["held-rows due"]) for slot in self._slots[stage])

    def run(self, rows: Sequence[Any], *, end: int | None = None, tries: int = 1) -> None:
        """Run a batch; all but the last of the tries are rolled back when all is prepared."""
        last = self._coordinator.latest.batch
        begun = self._coordinator.begin(
            0 if last is None else last.id + 1,
            query="q",
            source=f"{rows}",
            watermark=next_watermark(self._plan, last),
            idle=idle_since(self._plan, last),
        )
        assert isinstance(begun, Transaction)
        for number in range(tries):
            acknowledgements = self._prepare(begun, rows, end)
            if number < tries - 1:
                for slots in self._slots:
                    for slot in slots:
                        slot.roll_back()
        later = stage_watermarks(self._plan, last, begun.batch)
        reached = {name: at for name, (_, at) in later.items()}
        manifest = self._coordinator.commit(begun, acknowledgements, None, reached)
        self.late_rows += sum(one.counts.get("late_rows", 0) for one in acknowledgements)
        for output in manifest.outputs:
            number = next(n for n, stage in enumerate(self._specs) if stage.name == output.operator)
            stage = self._specs[number]
            row_type = stage.handed_on if output.name == MAIN else stage.row_types[output.name]
            assert row_type is not None
            found = read_output(read_ref(self._plan.backend.open_storage(), output.place), row_type, output.format)
            self.outputs.setdefault((output.operator, output.name), []).extend(found)

    def _prepare(self, begun: Transaction, rows: Sequence[Any], end: int | None) -> list[Acknowledgement]:
        later = stage_watermarks(self._plan, self._coordinator.latest.batch, begun.batch)
        done: list[Acknowledgement] = []
        batches = batches_by_slot([list(rows)], self._specs[0])
        for number, (stage, slots) in enumerate(zip(self._specs, self._slots, strict=True)):
            tasks = [task for task in begun.tasks if task.operator == stage.name]
            before, reached = later.get(stage.name, (None, None))
            acknowledgements = []
            for slot, task, batch in zip(slots, tasks, batches, strict=True):
                if number:
                    changed = msgspec.structs.replace(task.batch, watermark=before)
                    task = msgspec.structs.replace(task, batch=changed)
                slot.start(task)
                if batch is not None:
                    for start in range(0, batch.num_rows, 3):  # as Arrow batches come
                        slot.operator.process_batch(batch.slice(start, 3))
                target = reached if end is None else end
                if target is not None:
                    slot.operator.advance_watermark(target)
                slot.operator.check_invariants()
                acknowledgements.append(slot.prepare("")[1][0])
            if number:
                acknowledgements = [msgspec.structs.replace(one, max_event_time=None) for one in acknowledgements]
            done += acknowledgements
            if number + 1 < len(self._specs):
                batches = self._handed_on(acknowledgements, stage, self._specs[number + 1])
        return [Acknowledgement.from_bytes(one.to_bytes()) for one in done]

    def _handed_on(
        self, acknowledgements: list[Acknowledgement], stage: StageSpec, after: StageSpec
    ) -> list[pa.RecordBatch | None]:
        """The main output of all slots, slot by slot, as the slots of the next stage get it."""
        storage, batches = self._plan.backend.open_storage(), []
        for one in acknowledgements:
            for output in one.outputs:
                if output.name == MAIN:
                    content = output.content
                    if content is None:
                        assert output.place is not None
                        content = read_ref(storage, output.place)
                    batches += list(pa.ipc.open_stream(content))
        if not batches:
            return [None] * after.parallelism
        whole = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        groups = after.inputs[0].read(
            whole, after.key_schema, after.key_schema.key_grouper(after.max_parallelism)
        ).groups
        of_slot: list[list[int]] = [[] for _ in range(after.parallelism)]
        for position, group in enumerate(groups):
            of_slot[slot_for_key_group(after.max_parallelism, after.parallelism, group)].append(position)
        return [whole.take(pa.array(positions, pa.int64())) if positions else None for positions in of_slot]

    def _new_slot(self, stage: StageSpec) -> OperatorSlot:
        return OperatorSlot(
            stage.make_operator,
            self._plan.backend,
            stage.key_schema,
            max_parallelism=stage.max_parallelism,
            policy=_POLICY,
        )
