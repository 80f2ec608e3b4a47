"""`OperatorSlot`: one slot of an operator: the operator, and its side of the checkpoints.

    start(task)      → the state is where the task starts, and the operator's transaction has begun
    operator.…       → rows
    prepare(…)       → changes and outputs are prepared; the acknowledgements go to the coordinator
    roll_back()      → or: as if the task had not been started

Every backend that the checkpoint side makes gets a new operator, so a slot that restores gets a new function too.
Checkpoints store broadcast state as an operator of its own, with one key group: every slot restores it from the same
files and prepares the same change, under one name. `agreed_broadcast` compares checksums of the whole state, and the
acknowledgement of one slot is committed.

Invariant: keyed and broadcast state are at the same point: both hot, or both restored.

Thread safety: one thread, the backend's owner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.slot import INLINE_BYTES, SlotCheckpoint, SlotStatistics, Start
from emberstate.checkpoint.manifest.chain import DEFAULT_POLICY, ChainPolicy
from emberstate.errors import InvariantError, LifecycleError, StateDeclarationError, UserFunctionError
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.runtime.operator.operator import KeyedOperator
from emberstate.runtime.operator.snapshot import OperatorSnapshot
from emberstate.runtime.rows.outputs import MAIN, OutputRows, TransactionResult, write_output
from emberstate.runtime.rows.parquet_outputs import fits_parquet, write_parquet
from emberstate.runtime.rows.times import MIN_TIME
from emberstate.state.keyed_state_backend import KeyedStateBackend

MakeOperator = Callable[[KeyedStateBackend], KeyedOperator]


def broadcast_operator_name(operator: str) -> str:
    """What an operator's broadcast state is called in checkpoints."""
    return f"{operator}/broadcast"


class OperatorSlot:
    """One slot: `make_operator` makes the operator around an empty backend."""

    def __init__(
        self,
        make_operator: MakeOperator,
        state_backend: StateBackend,
        key_schema: KeySchema,
        *,
        max_parallelism: int,
        policy: ChainPolicy = DEFAULT_POLICY,
    ) -> None:
        self._make_operator = make_operator
        self._state_backend = state_backend
        self._key_schema = key_schema
        self._max_parallelism = max_parallelism
        self._policy = policy
        storage = state_backend.open_slot_storage()
        self._has_directory = storage is not None and storage.directory is not None
        self._operator: KeyedOperator | None = None
        self._keyed = self._new_keyed()
        self._broadcast: SlotCheckpoint | None = None
        self._watermark = MIN_TIME  # of the operator, where the transaction started
        #: Microseconds of the last transaction's parts: start, state (begin and end), output, prepare.
        self.micros: dict[str, int] = {}

    @property
    def operator(self) -> KeyedOperator:
        """The operator, once a task was started."""
        if self._operator is None:
            raise LifecycleError("the slot has no operator yet: start a task first", option="start")
        return self._operator

    @property
    def is_hot(self) -> bool:
        """Whether it holds state."""
        return self._operator is not None

    def start(self, task: SlotTask, broadcast: SlotTask | None = None) -> Start:
        """Bring the state to where the task starts, begin the transaction, and fire what is due.

        If this raises, roll back.
        """
        begun = time.perf_counter_ns()
        try:
            how = self._reach(task, broadcast)
        except BaseException:
            # Drop state that did not reach the start; the next start restores.
            self.close()
            self._keyed = self._new_keyed()
            raise
        operator = self.operator
        if how == "rolled back":
            operator.roll_back(self._start())
        self._watermark = operator.watermark
        reached = time.perf_counter_ns()
        operator.begin(task.batch.processing_time, task.batch.watermark)
        self.micros = {"start": (reached - begun) // 1000, "state": (time.perf_counter_ns() - reached) // 1000}
        return how

    def prepare(self, broadcast_attempt: str) -> tuple[TransactionResult, list[Acknowledgement]]:
        """End the transaction; return its result and the acknowledgements, of keyed, then of broadcast state.

        `broadcast_attempt` names the broadcast state from here on, in all slots. If this raises, roll back.
        """
        operator = self.operator
        begun = time.perf_counter_ns()
        result = operator.end()
        ended = time.perf_counter_ns()
        contents, parquet = _contents(result.outputs, INLINE_BYTES if self._has_directory else None)
        written = time.perf_counter_ns()
        acknowledgements = [
            self._keyed.prepare(
                contents,
                max_event_time=result.max_event_time,
                input_times=result.input_times,
                counts=_counts(result),
                parquet=parquet,
            )
        ]
        if self._broadcast is not None:
            acknowledgements.append(self._broadcast.prepare(attempt=broadcast_attempt))
        self.micros["state"] += (ended - begun) // 1000
        self.micros["output"] = (written - ended) // 1000
        self.micros["prepare"] = (time.perf_counter_ns() - written) // 1000
        return result, acknowledgements

    def roll_back(self) -> None:
        """Undo the transaction, prepared or not: state, timers, and the function, which is made anew."""
        if self._operator is None:
            return
        self._operator.roll_back(self._start())
        self._keyed.roll_back()
        if self._broadcast is not None:
            self._broadcast.roll_back()

    def progress(self) -> str:
        """Return how far it has got, as a text that changes with every step. Any thread."""
        operator, broadcast = self._operator, self._broadcast
        moved = self._keyed.moved_bytes + (0 if broadcast is None else broadcast.moved_bytes)
        handled = "" if operator is None else f"{operator.progress()}; "
        return f"{handled}{moved} bytes of state read and written"

    def statistics(self) -> SlotStatistics:
        """Return counts of its side of the checkpoints."""
        return self._keyed.statistics()

    def close(self) -> None:
        """Close the operator and drop all state; a second call does nothing."""
        self._detach()
        self._keyed.close()

    # -- inside ---------------------------------------------------------------------------------------------

    def _reach(self, task: SlotTask, broadcast: SlotTask | None) -> Start:
        how = self._keyed.start(task)
        operator = self.operator
        if (operator.broadcast_backend is None) != (broadcast is None):
            what = f"operator {operator.name!r}: its broadcast state and its task do not match"
            raise InvariantError(what, operator=operator.name)
        if broadcast is not None:
            if self._broadcast is None:
                self._broadcast = self._new_broadcast(operator)
            self._broadcast.start(broadcast)
        return how

    def _start(self) -> OperatorSnapshot:
        """Where the transaction started."""
        broadcast = None if self._broadcast is None else self._broadcast.committed
        return OperatorSnapshot(self._keyed.committed, broadcast, self._watermark)

    def _new_keyed(self) -> SlotCheckpoint:
        return self._state_backend.make_slot(
            self._key_schema, self._attach, max_parallelism=self._max_parallelism, policy=self._policy
        )

    def _attach(self, backend: KeyedStateBackend) -> None:
        """Make the operator of a new backend."""
        self._detach()
        operator = self._make_operator(backend)
        operator.open()
        self._operator = operator

    def _detach(self) -> None:
        if self._broadcast is not None:
            self._broadcast.close()
            self._broadcast = None
        if self._operator is not None:
            self._operator.close()
            self._operator = None

    def _new_broadcast(self, operator: KeyedOperator) -> SlotCheckpoint:
        """Return the checkpoint side of the operator's broadcast state. It can restore once."""
        fresh = [operator.broadcast_backend]

        def make(groups: KeyGroupRange) -> KeyedStateBackend:
            backend = fresh.pop() if fresh else None
            if backend is None:
                what = f"operator {operator.name!r}: its keyed state is hot, its broadcast state is not"
                raise InvariantError(what, operator=operator.name)
            return backend

        chosen = self._state_backend
        return SlotCheckpoint(
            make, chosen.open_slot_storage(), policy=self._policy, state_limit=chosen.max_state_size, compared=True
        )


def agreed_broadcast(operator: str, answers: Sequence[Sequence[Acknowledgement]]) -> list[Acknowledgement]:
    """Return the acknowledgement of an operator's broadcast state to commit; none if it has no broadcast state.

    `answers` has the acknowledgements of each slot to one transaction: of keyed, then of broadcast state.

    Raises:
        UserFunctionError: broadcast state differs between slots.
    """
    (_, *first), *others = answers
    for slot, (_, *other) in enumerate(others, start=1):
        for expected, found in zip(first, other, strict=True):
            names = expected.checksums.keys() | found.checksums.keys()
            different = sorted(name for name in names if expected.checksums.get(name) != found.checksums.get(name))
            if different:
                raise UserFunctionError(
                    f"stage {operator!r}: broadcast state {', '.join(different)} is not the same in slots 0 and {slot} "
                    f"after the same broadcast rows; checkpoint {found.number} was not committed. "
                    f"process_broadcast_element must do the same in every slot: no random numbers, clocks or process "
                    f"ids, nothing that follows the order of a set or of a map's keys. Correct it and start again: the "
                    f"batch comes again, on the state that was committed before it.",
                    operator=operator,
                    slot=slot,
                    state=different[0],
                    checkpoint=found.number,
                )
    return first


def _contents(
    outputs: Mapping[str, OutputRows], parquet_above: int | None
) -> tuple[list[tuple[str, int, bytes]], set[str]]:
    """Outputs with rows, as they are stored, and the names of those that are Parquet: with more bytes than
    `parquet_above`."""
    contents, parquet = [], set()
    for name, output in outputs.items():
        row_type = output.stored_type
        if row_type is None:
            if output.rows:
                raise StateDeclarationError(
                    f"{output.label} has no schema, and a row came: {output.rows[0]!r:.200}. Declare its schema.",
                    option="output" if name == MAIN else "side_outputs",
                    found=name,
                )
            continue
        batches = output.batches()
        rows = sum(batch.num_rows for batch in batches)
        if not rows:
            continue
        size = sum(batch.nbytes for batch in batches)
        if parquet_above is not None and size > parquet_above and fits_parquet(row_type):
            contents.append((name, rows, write_parquet(batches, row_type)))
            parquet.add(name)
        else:
            contents.append((name, rows, write_output(batches, row_type)))
    return contents, parquet


def _counts(result: TransactionResult) -> dict[str, int]:
    return {
        "rows": result.rows,
        "late_rows": result.late_rows,
        "late_rows_dropped": result.late_rows_dropped,
        "timers_fired": result.timers_fired,
        **{f"counter/{name}": count for name, count in result.counters.items()},
    }
