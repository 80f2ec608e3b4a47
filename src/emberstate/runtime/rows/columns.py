"""The columns that the library adds on a row's way: names that no input may have.

- `KEY_GROUP_COLUMN`, `SLOT_COLUMN`, `MICROS_COLUMN`, `ORDER_COLUMN`: the driver adds them to partition and sort rows.
- `PANE_COLUMN`, `SINGLE_COLUMN`, `LEAST_COLUMN` and `GREATEST_COLUMN`: it adds them to combine rows, too
  (`spark.driver.combined_frame`).
- `INPUT_COLUMN` and `ROW_COLUMNS`: two inputs in one frame. `BROADCAST_COLUMN`: a row that goes to every slot.
- `TIME_COLUMN`, `ROWS_COLUMN` and `LATEST_COLUMN`: of a row that stands for several: when, how many, their latest time.
- `ALL_COLUMN`, `PANE_COLUMNS` and `WHOLE_COLUMN`: of partial rows of aggregates (`runtime.aggregates.spec`).
- `ORIGIN_COLUMN` and `REACHED_COLUMN`: of a row that a stage emitted for the next one (`emissions`).
"""

from __future__ import annotations

from typing import Final

from emberstate.runtime.rows.data_types import Column, parse_type
from emberstate.runtime.rows.row import RowType

KEY_GROUP_COLUMN: Final = "__key_group"
SLOT_COLUMN: Final = "__slot"
MICROS_COLUMN: Final = "__micros"
ORDER_COLUMN: Final = "__order"
PANE_COLUMN: Final = "__pane"
SINGLE_COLUMN: Final = "__single"
LEAST_COLUMN: Final = "__least"
GREATEST_COLUMN: Final = "__greatest"
INPUT_COLUMN: Final = "__input"
ROW_COLUMNS: Final = ("__row0", "__row1")
BROADCAST_COLUMN: Final = "__broadcast"
ORIGIN_COLUMN: Final = "__origin"
REACHED_COLUMN: Final = "__reached"
TIME_COLUMN: Final = "__time"
ROWS_COLUMN: Final = "__rows"
LATEST_COLUMN: Final = "__latest"
ALL_COLUMN: Final = "__all"
PANE_COLUMNS: Final = ("__window_start", "__window_end")
WHOLE_COLUMN: Final = "__whole"

RESERVED: Final = (
    *(KEY_GROUP_COLUMN, INPUT_COLUMN, *ROW_COLUMNS, ORIGIN_COLUMN, REACHED_COLUMN),
    *(SLOT_COLUMN, ORDER_COLUMN, MICROS_COLUMN, BROADCAST_COLUMN, PANE_COLUMN, SINGLE_COLUMN),
    *(LEAST_COLUMN, GREATEST_COLUMN),
    *(TIME_COLUMN, ROWS_COLUMN, LATEST_COLUMN, ALL_COLUMN, *PANE_COLUMNS, WHOLE_COLUMN),
)


def with_origins(row_type: RowType) -> RowType:
    """The columns of `row_type`, then origin and reached time."""
    return RowType(
        [
            *row_type.columns,
            Column(ORIGIN_COLUMN, parse_type("binary")),
            Column(REACHED_COLUMN, parse_type("bigint")),
        ]
    )


def quoted(name: str) -> str:
    """A column's name as Spark reads it wherever it takes an expression.

    >>> quoted("a.b")
    '`a.b`'
    """
    return f"`{name.replace('`', '``')}`"
