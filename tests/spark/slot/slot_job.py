"""A job whose slots are real processes: the driver's side is a coordinator here, and a dict says what is right."""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle

from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend, StateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator, Transaction
from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.open_files import read_ref
from emberstate.clock import ManualClock
from emberstate.runtime.functions.function import KeyedBroadcastProcessFunction, KeyedCoProcessFunction, ProcessFunction
from emberstate.runtime.operator.stage_spec import StageSpec
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.runtime.rows.outputs import read_output
from emberstate.runtime.rows.row import RowType
from emberstate.spark.slot.address import Executor, SlotId, address_of
from emberstate.spark.slot.client import run_in_slot
from emberstate.spark.slot.messages import SlotAnswer, SlotProgram, SlotRequest, program_digest
from tests.patience import PATIENCE
from tests.spark.slot.slot_functions import COLUMNS, Adding

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("command", pa.string())])
Rows = Sequence[tuple[str | None, int, str]]
POLICY = ChainPolicy(most_files=8, rewrite_at=3)


def batch_of(rows: Rows) -> pa.RecordBatch:
    """Rows as Arrow has them."""
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.record_batch([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def stream_of(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def state_backend(kind: str, root: Path) -> StateBackend:
    """A backend of either kind below a directory."""
    if kind == "memory":
        return MemoryStateBackend()
    if kind == "rocksdb":
        return RocksDBStateBackend(root / "checkpoints", memory="16 MiB", local_directory=root / "local")
    return FsStateBackend(root / "checkpoints")


@dataclasses.dataclass
class Job:
    """One operator with one slot."""

    backend: StateBackend
    executor: Executor = dataclasses.field(default_factory=Executor.of_this_worker)
    function: ProcessFunction = dataclasses.field(default_factory=Adding)
    drop_null_keys: bool = False
    idle_seconds: float = PATIENCE
    stuck_seconds: float = 120.0
    stall_seconds: float = 300.0
    #: What the time without progress is measured by.
    clock: Callable[[], float] = time.monotonic
    name: str = dataclasses.field(default_factory=lambda: f"job-{secrets.token_hex(6)}")
    token: str = dataclasses.field(default_factory=lambda: secrets.token_hex(16))
    attempt: int = 0
    #: How often the program was asked for.
    programs: int = 0

    def __post_init__(self) -> None:
        input = KeyedInput(COLUMNS, ["key"])
        self.spec = StageSpec(
            name="sums",
            function=self.function,
            inputs=(input, input) if isinstance(self.function, KeyedCoProcessFunction) else (input,),
            broadcast=RowType.of("note string") if isinstance(self.function, KeyedBroadcastProcessFunction) else None,
            output=RowType.of("key string, total bigint"),
            side_outputs={},
            late_output=None,
            out_of_orderness="0 seconds",
            parallelism=1,
            max_parallelism=4,
            follows_event_time=True,
        )
        self.open()

    def open(self) -> None:
        """Start the job, again and again."""
        template = self.spec.open_template()
        specs = self.spec.operator_specs(template)
        self.coordinator = CheckpointCoordinator.open(
            self.backend.open_storage(), self.name, specs, clock=ManualClock(1), policy=POLICY
        )
        template.close()
        program = SlotProgram(
            stage=self.spec,
            state_backend=self.backend,
            policy=POLICY,
            drop_null_keys=self.drop_null_keys,
            idle_seconds=self.idle_seconds,
        )
        self.program: bytes = cloudpickle.dumps(program)  # type: ignore[no-untyped-call]

    @property
    def slot_id(self) -> SlotId:
        """Its slot."""
        return SlotId(
            application="application",
            job=self.name,
            operator="sums",
            slot=0,
            token=self.token,
            idle_seconds=self.idle_seconds,
            stuck_seconds=self.stuck_seconds,
            stall_seconds=self.stall_seconds,
        )

    @property
    def address(self) -> bytes:
        """The name of its slot's socket."""
        return address_of(self.slot_id, self.executor)

    def begin(self) -> Transaction:
        """Begin the next batch, or again the one that was begun."""
        last = self.coordinator.latest.batch
        batch = 0 if last is None else last.id + 1
        begun = self.coordinator.begin(batch, query="q", source=f"batch {batch}")
        assert isinstance(begun, Transaction)
        return begun

    def request(self, transaction: Transaction, **changes: Any) -> SlotRequest:
        """The request of a new task attempt."""
        self.attempt += 1
        values = {
            "incarnation": self.coordinator.holder.incarnation,
            "batch": transaction.batch.id,
            "task_attempt": self.attempt,
            "task": transaction.tasks[0].to_bytes(),
            "program": program_digest(self.program),
        }
        if len(transaction.tasks) > 1:
            values |= {"broadcast_task": transaction.tasks[1].to_bytes(), "broadcast_attempt": secrets.token_hex(12)}
        return SlotRequest(**{**values, **changes})

    def send(self, request: SlotRequest, batches: Iterator[pa.RecordBatch]) -> SlotAnswer:
        """Run a request, as a task does."""
        return run_in_slot(
            self.slot_id, request, self._program, batches, SCHEMA, executor=self.executor, clock=self.clock
        )

    def _program(self) -> bytes:
        self.programs += 1
        return self.program

    def attempted(self, *batches: Rows, **changes: Any) -> SlotAnswer:
        """A task of the next batch that nobody commits."""
        return self.send(self.request(self.begin(), **changes), iter([batch_of(rows) for rows in batches]))

    def run(self, *batches: Rows, **changes: Any) -> tuple[SlotAnswer, dict[str, int]]:
        """A whole transaction; what the last row of each key put out."""
        transaction = self.begin()
        answer = self.send(self.request(transaction, **changes), iter([batch_of(rows) for rows in batches]))
        return answer, self.commit(transaction, answer)

    def commit(self, transaction: Transaction, answer: SlotAnswer) -> dict[str, int]:
        """Commit what a slot has prepared; what the last row of each key put out."""
        manifest = self.coordinator.commit(transaction, acknowledgements(answer))
        storage = self.backend.open_storage()
        rows: dict[str, int] = {}
        for output in manifest.outputs:
            content, row_type = read_ref(storage, output.place), self.spec.row_types[output.name]
            rows.update(read_output(content, row_type, output.format))
        return rows


def acknowledgements(answer: SlotAnswer) -> list[Acknowledgement]:
    """What an answer carries."""
    return [Acknowledgement.from_bytes(one) for one in answer.acknowledgements]


class Sums:
    """What is right."""

    def __init__(self) -> None:
        self.totals: Counter[str] = Counter()

    def add(self, *batches: Rows) -> dict[str, int]:
        """What the last row of each key puts out."""
        keys = set()
        for rows in batches:
            for key, value, _ in rows:
                assert key is not None
                self.totals[key] += value
                keys.add(key)
        return {key: self.totals[key] for key in keys}
