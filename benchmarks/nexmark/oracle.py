"""The right answers, computed by DuckDB from the same files, and the comparison with what a job put out.

Rows are compared as multisets, value by value: a row that is missing, too many or different is a difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from benchmarks.nexmark.queries.query import Query

_SHOWN = 3


class Oracle:
    """Answers over one stream of files. One thread at a time."""

    def __init__(self, files: Path) -> None:
        self._database: Any = duckdb.connect()
        self._database.execute("SET TimeZone = 'UTC'")
        events = f"read_parquet('{files}/*.parquet', filename = true)"
        number = "CAST(regexp_extract(filename, '(\\d+)\\.parquet$', 1) AS INT)"
        for kind, name in enumerate(("person", "auction", "bid")):
            self._database.execute(
                f"CREATE TABLE {name} AS SELECT {name}.*, {number} AS batch FROM {events} WHERE event_type = {kind}"
            )

    def differences(self, query: Query, output: Path) -> list[str]:
        """What is wrong with the rows below `output`, a folder of Parquet files per batch; empty if nothing is."""
        expected, found = self._tables(query, output)
        if query.keys:
            columns = ", ".join((*query.keys, query.version))
            double = f"SELECT {columns} FROM found GROUP BY ALL HAVING count(*) > 1"
            if wrong := self._described("the same version twice", double):
                return [wrong]
        return [
            wrong
            for wrong in (
                self._described("missing", f"{expected} EXCEPT ALL {found}"),
                self._described("unexpected", f"{found} EXCEPT ALL {expected}"),
            )
            if wrong
        ]

    def unexpected(self, query: Query, output: Path) -> list[str]:
        """The same for an output whose last windows may be open: nothing in it may be wrong, nor may it be empty."""
        expected, found = self._tables(query, output)
        if not self._database.execute("SELECT count(*) FROM found").fetchone()[0]:
            return ["no rows at all"]
        wrong = self._described("unexpected", f"{found} EXCEPT ALL {expected}")
        return [wrong] if wrong else []

    def rows(self, query: Query) -> int:
        """How many rows the answer has."""
        return int(self._database.execute(f"SELECT count(*) FROM ({query.oracle})").fetchone()[0])

    def _tables(self, query: Query, output: Path) -> tuple[str, str]:
        """Selections of the right rows and of those that count of the found ones, with the same columns."""
        self._database.execute(f"CREATE OR REPLACE TABLE expected AS {query.oracle}")
        described = self._database.execute("DESCRIBE expected").fetchall()
        columns = ", ".join(row[0] for row in described)
        if any(output.glob("*/*.parquet")):
            source = f"SELECT * FROM read_parquet('{output}/*/*.parquet')"
        else:
            source = "SELECT * FROM expected WHERE false"
        self._database.execute(f"CREATE OR REPLACE TABLE found AS {source}")
        last = ""
        if query.keys:
            keys = ", ".join(query.keys)
            last = f"QUALIFY row_number() OVER (PARTITION BY {keys} ORDER BY {query.version} DESC) = 1"
        return f"SELECT {columns} FROM expected", f"(SELECT {columns} FROM found {last})"

    def _described(self, what: str, selection: str) -> str:
        count = self._database.execute(f"SELECT count(*) FROM ({selection})").fetchone()[0]
        if not count:
            return ""
        first = self._database.execute(f"SELECT * FROM ({selection}) ORDER BY ALL LIMIT {_SHOWN}").fetchall()
        return f"{count} rows {what}, such as {'; '.join(map(str, first))}"
