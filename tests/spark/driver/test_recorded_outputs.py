"""What a stored batch is delivered as, judged without Spark."""

from __future__ import annotations

import msgspec
import pytest

import emberstate as es
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from emberstate.checkpoint.manifest.model import Manifest, Stage
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.errors import CorruptionError, LifecycleError, RestoreRefusedError, StateDeclarationError
from emberstate.keygroups import KeySchema
from emberstate.runtime.rows.row import RowType
from emberstate.spark.driver.once_per_batch import once_per_batch
from emberstate.spark.driver.recorded_outputs import RowTypes, changed, delivered_as
from emberstate.spark.driver.source_position import BY_HAND
from emberstate.storage.memory import MemoryStorage
from tests.raising import raising

STORAGE = MemoryStorage()
OPENED = CheckpointCoordinator.open(
    STORAGE, "job", [OperatorSpec(name="a", key_schema=KeySchema.from_python(str))]
).latest
A, B = Stage("a", {"main": "x int", "late": "y int"}), Stage("b", {"main": "z int"})


def recorded(*stages: Stage) -> Manifest:
    return msgspec.structs.replace(OPENED, stages=stages)


def delivered(then: list[Stage], now: list[Stage]) -> RowTypes:
    return delivered_as(STORAGE, recorded(*then), now, [stage.name for stage in now])


def test_the_recorded_schemas_are_taken() -> None:
    """Catches: the schemas of now for rows of then; a stage in between taken for one that a sink waits for."""
    wider = Stage("a", {"main": "v int, x int", "late": "y bigint"})
    assert delivered([A], [wider]) == {("a", "main"): RowType.of("x int"), ("a", "late"): RowType.of("y int")}
    assert changed(delivered([A], [wider]), [wider]) == [
        "main of a as (x int), now (v int, x int)",
        "late of a as (y int), now (y bigint)",
    ]
    assert delivered([A, B], [A, Stage("c", {"main": "w int"}), B]).keys() == {("a", "late"), ("b", "main")}
    silent = Stage("b")
    assert delivered([A, silent], [A, silent]).keys() == {("a", "late")}


@pytest.mark.parametrize(
    "now", [[A, B], [B], [Stage("a", {"main": "x int"})], [Stage("a", {**A.outputs, "more": "z int"})], [Stage("a")]]
)
def test_other_outputs_are_refused(now: list[Stage]) -> None:
    """Catches: rows that reach no sink, or a sink that gets an empty frame for rows of another output."""
    with raising(RestoreRefusedError, "old program", checkpoint=1):
        delivered([A], now)


def test_a_record_that_is_no_schema_is_damage() -> None:
    """Catches: a manifest that was tampered with blamed on the program."""
    with raising(CorruptionError, checkpoint=1, found="integr"):
        delivered([Stage("a", {"main": "x integr"})], [A])


def test_two_ways_to_start_are_refused() -> None:
    """Catches: one of two contradicting options forgotten."""
    pipeline = es.Pipeline("job", es.MemoryStateBackend())
    with raising(StateDeclarationError, option="starting_empty_at"):
        pipeline.starting_empty_at(3).from_savepoint("s")
    for wrong in (-1, True, "3", None):
        with raising(StateDeclarationError, option="starting_empty_at"):
            pipeline.starting_empty_at(wrong)  # type: ignore[arg-type]


def test_a_batch_is_given_once_in_a_run() -> None:
    """Catches: a second call in one run, or one beside the first; a refusal of what failed, of another run or batch, of
    another job, or of calls by hand."""

    def given(job: str, run: str, batch: int) -> bool:
        try:
            with once_per_batch(job, run, batch):
                return True
        except LifecycleError:
            return False

    with pytest.raises(OSError, match="full"), once_per_batch("j", "r1", 0):
        assert not given("j", "r1", 0)  # as another thread would
        raise OSError("full")
    calls = [("j", "r1", 0), ("j", "r1", 0), ("j", "r1", 1), ("k", "r1", 1), ("j", "r1", 1), ("j", "r2", 1)]
    assert [given(*call) for call in calls] == [True, False, True, True, False, True]
    assert given("j", BY_HAND, 1) and given("j", BY_HAND, 1)
