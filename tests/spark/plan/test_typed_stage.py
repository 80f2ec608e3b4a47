"""Stages whose functions name the types of their rows, as they are planned; no Spark."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

import emberstate as es
from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.spark.plan.stage import InputPlan, StagePlan
from tests.raising import raising

INPUT = RowType.of("card string, shop string, amount double, ts timestamp")


class Payment(NamedTuple):
    """What the first stage needs."""

    amount: float


class Total(NamedTuple):
    """What it emits."""

    card: str
    total: float


class Totals(es.KeyedProcessFunction[Payment, str, Total]):
    """A first stage."""

    def process_element(self, row: Payment, ctx: Any) -> Any:
        return None


class Wrong(NamedTuple):
    """What the first stage does not emit."""

    card: str
    total: int


class OfWrong(es.KeyedProcessFunction):
    """A second stage."""

    def process_element(self, row: Wrong, ctx: Any) -> Any:
        return None


def first() -> es.Pipeline:
    """A pipeline with one stage, whose output its function's type says."""
    return es.Pipeline("job", es.MemoryStateBackend()).key_by("card").process("totals", Totals())


def test_a_later_stage_is_checked_when_it_is_added() -> None:
    """Catches: a type that does not fit, found when the first batch runs; an output type that is no schema."""
    with raising(StateDeclarationError, operator="wrong", column="total", expected="double"):
        first().key_by("card").process("wrong", OfWrong())
    with raising(StateDeclarationError, operator="totals", option="schema"):
        es.Pipeline("job", es.MemoryStateBackend()).key_by("card").process("totals", Totals(), "total double")
    for columns in ("card", [], [1]):
        with raising(StateDeclarationError, option="columns"):
            first().key_by("card").process("next", OfWrong(), columns=columns)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "travels"),
    [
        ({}, ("card", "amount")),
        ({"input": InputPlan(key_columns=("card",), event_time="ts")}, ("card", "amount", "ts")),
        ({"late_output": "late"}, INPUT.names),
    ],
)
def test_what_travels(options: Any, travels: tuple[str, ...]) -> None:
    """Catches: a key or time that does not travel, columns that nobody needs, late rows that are not whole."""
    given: dict[str, Any] = {"name": "totals", "function": Totals(), "input": InputPlan(key_columns=("card",))}
    stage = StagePlan(**{**given, **options})
    spec = stage.spec(INPUT, {}, parallelism=1, max_parallelism=8)

    assert spec.inputs[0].row_type.names == travels
    assert stage.of_held_rows(spec, INPUT).inputs[0].row_type == INPUT
