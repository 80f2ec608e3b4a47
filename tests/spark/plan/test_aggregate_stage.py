"""A stage of declared aggregates as it is planned; no Spark."""

from __future__ import annotations

from typing import Any

import pytest

import emberstate as es
from emberstate.errors import StateDeclarationError
from emberstate.runtime.rows.row import RowType
from emberstate.spark.plan.aggregate_stage import AggregateStagePlan
from emberstate.spark.plan.stage import InputPlan
from tests.raising import raising

INPUT = RowType.of("card string, shop string, amount int")


@pytest.mark.parametrize("aggregate", [es.sum("amuont"), es.sum("shop")])
def test_an_aggregate_that_does_not_fit_is_told_with_its_stage(aggregate: Any) -> None:
    """Catches: an error that says which column is wrong, and not in which of many stages."""
    stage = AggregateStagePlan(name="totals", input=InputPlan(key_columns=("card",)), aggregates={"n": aggregate})
    with raising(StateDeclarationError, "totals", operator="totals", column=aggregate.column):
        stage.row_types(INPUT)
