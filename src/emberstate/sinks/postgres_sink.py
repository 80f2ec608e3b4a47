"""`postgres`: output as rows of a table of PostgreSQL, each batch in one transaction.

Spark's tasks copy the parts into a staging table, each attempt under a number of its own. Then the driver publishes, in
one transaction: it locks the marker of the delivery's origin, compares it with the batch, inserts the rows of the
attempts that counted, and moves the marker. Who finds a marker that is not older does nothing, so a driver that was
paused adds nothing. Staging tables are unlogged and empty after a crash of the server: the rows are counted before the
commit. What killed drivers have left of batches up to it is dropped after that.

Thread safety: one delivery at a time; parts are copied in Spark's tasks, each on a connection of its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import uuid
from collections.abc import Iterator
from typing import Any, Final

from emberstate.errors import EmberstateError, SinkError, StateDeclarationError
from emberstate.sinks.extras import needed
from emberstate.sinks.interface import Delivery, Sink, Start
from emberstate.sinks.parts import Part
from emberstate.sinks.postgres_columns import check_table, copied, creation

_ATTEMPT: Final = "__attempt"
_MARKERS: Final = "emberstate_markers"


class PostgresSink(Sink):
    """Appends to a table of PostgreSQL."""

    promise = "exactly-once: a batch is one transaction, with its marker"

    def __init__(self, dsn: str, table: str) -> None:
        for name, given in (("dsn", dsn), ("table", table)):
            if not isinstance(given, str) or not given:
                raise StateDeclarationError(f"{name}: expected a text, got {given!r:.20}", option=name)
        schema, _, name = table.rpartition(".")
        self._target = _Target(dsn, schema, name)

    def check(self, start: Start) -> None:
        target = self._target
        with target.connection() as db:
            found = target.columns(db)
            if not found:
                raise SinkError(
                    f"there is no table {target.table}, or it cannot be seen. Create it: "
                    f"{creation(start.row_type, target.table)}",
                    option="table", found=target.table,
                )  # fmt: skip
            check_table(start.row_type, found, target.table)
            db.execute(
                f"CREATE TABLE IF NOT EXISTS {target.in_schema(_MARKERS)} "
                f"(origin text, target text, batch bigint NOT NULL, PRIMARY KEY (origin, target))"
            )
            rehearsal = target.stage(db, target.staging_name("check", 0))
            db.execute(f"INSERT INTO {target.table} ({target.names(start.row_type)}) "
                       f"SELECT {target.names(start.row_type)} FROM {rehearsal}")  # fmt: skip
            db.execute(f"SELECT batch FROM {target.in_schema(_MARKERS)} WHERE false FOR UPDATE")
            db.execute(f"DROP TABLE {rehearsal}")

    def deliver(self, delivery: Delivery) -> None:
        if not delivery.parts:
            return
        target = self._target
        with target.connection() as db:
            if target.marker(db, delivery.origin.id) >= delivery.batch:
                return
            check_table(delivery.row_type, target.columns(db), target.table)
            name = target.staging_name(delivery.origin.id, delivery.batch)
            staging = target.stage(db, name)
        useless = [name]
        try:
            attempts = delivery.in_tasks(_Copy(target, staging))
            with target.connection() as db:
                self._publish(db, delivery, staging, attempts)
                useless = target.staged_until(db, delivery.origin.id, delivery.batch)
        finally:
            for name in useless:
                with contextlib.suppress(SinkError), target.connection() as db:  # the next batch tries again
                    db.execute("SET LOCAL lock_timeout = '5s'")
                    db.execute(f"DROP TABLE IF EXISTS {target.in_schema(name)}")

    def _publish(self, db: Any, delivery: Delivery, staging: str, attempts: list[str]) -> None:
        target, origin = self._target, delivery.origin.id
        markers, key = target.in_schema(_MARKERS), (origin, target.table)
        db.execute(f"INSERT INTO {markers} VALUES (%s, %s, -1) ON CONFLICT DO NOTHING", key)
        if target.marker(db, origin, "FOR UPDATE") >= delivery.batch:
            return
        names = target.names(delivery.row_type)
        done = db.execute(
            f'INSERT INTO {target.table} ({names}) SELECT {names} FROM {staging} WHERE "{_ATTEMPT}" = ANY(%s)',
            (attempts,),
        )
        if done.rowcount != delivery.rows:
            raise SinkError(
                f"{target.table}, batch {delivery.batch}: {delivery.rows} rows were staged, and {done.rowcount} are "
                f"left; the server was restarted, or a trigger drops rows. Nothing was written. Start the query again.",
                option="table", expected=delivery.rows, found=done.rowcount,
            )  # fmt: skip
        db.execute(f"UPDATE {markers} SET batch = %s WHERE origin = %s AND target = %s", (delivery.batch, *key))

    def __repr__(self) -> str:
        return f"postgres({_without_secrets(self._target.dsn)!r}, {self._target.shown!r})"


def postgres(dsn: str, table: str) -> PostgresSink:
    """A sink that appends to an existing table of PostgreSQL, exactly once.

    >>> import emberstate as es
    >>> es.sinks.postgres("host=db dbname=shop password=secret", "public.totals")
    postgres('host=db dbname=shop password=…', 'public.totals')

    Args:
        dsn: A connection string of libpq. Tasks need it; without a password in it, they read `PGPASSFILE`.
        table: The table, or `schema.table`. Its columns must hold the output's unchanged, or the start is refused
            with the statement that makes a fitting table. It may have more columns, which get their defaults.

    A batch is one transaction, in which a row of `emberstate_markers`, in the table's schema, remembers it. The user
    needs INSERT on the table and CREATE in its schema. Needs the extra `postgres`, on the executors too.
    """
    return PostgresSink(dsn, table)


@dataclasses.dataclass(frozen=True, slots=True)
class _Target:
    """A table; travels to tasks."""

    dsn: str
    schema: str
    name: str

    @property
    def shown(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name

    @property
    def table(self) -> str:
        return self.in_schema(self.name)

    def in_schema(self, name: str) -> str:
        """A table of the same schema, quoted."""
        return f"{_quoted(self.schema)}.{_quoted(name)}" if self.schema else _quoted(name)

    def names(self, row_type: Any) -> str:
        return ", ".join(_quoted(column.name) for column in row_type.columns)

    @contextlib.contextmanager
    def connection(self) -> Iterator[Any]:
        """A connection in a transaction, which is committed at the end; errors say what to do."""
        library = needed("psycopg", "postgres")
        try:
            with library.connect(self.dsn, connect_timeout=30) as db:
                yield db
        except EmberstateError:
            raise
        except library.Error as error:
            reached = not isinstance(error, library.OperationalError)
            advice = (
                "Grant the user INSERT on the table and CREATE in its schema, or change the table."
                if reached else "Check the address, that the server runs, the user and the password."
            )  # fmt: skip
            raise SinkError(
                f"PostgreSQL, table {self.shown}: {str(error).strip()} ({type(error).__name__}). {advice} Nothing is "
                f"lost: a committed batch is delivered when the query is started again.",
                option="table" if reached else "dsn", found=type(error).__name__,
            ) from None  # fmt: skip

    def columns(self, db: Any) -> dict[str, str]:
        """The types of the table's columns; empty if there is no table."""
        found = db.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (self.table,),
        )
        return dict(found.fetchall())

    def marker(self, db: Any, origin: str, lock: str = "") -> int:
        """The last batch of an origin that is in the table; -1 if there is none."""
        query = f"SELECT batch FROM {self.in_schema(_MARKERS)} WHERE origin = %s AND target = %s {lock}"
        found = db.execute(query, (origin, self.table)).fetchone()
        return -1 if found is None else int(found[0])

    def staging_name(self, origin: str, batch: int) -> str:
        """A new name of a staging table for a batch."""
        return f"emberstate_staging_{origin[:12]}_{batch}_{uuid.uuid4().hex[:12]}"

    def staged_until(self, db: Any, origin: str, batch: int) -> list[str]:
        """The staging tables of an origin, up to a batch that is published: nobody needs them any more."""
        found = db.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, %s) AND relnamespace = "
            "(SELECT relnamespace FROM pg_class WHERE oid = to_regclass(%s))",
            (f"emberstate_staging_{origin[:12]}_", self.table),
        )
        return [name for (name,) in found if int(name.split("_")[3]) <= batch]

    def stage(self, db: Any, name: str) -> str:
        """Make a staging table; returns its name, quoted."""
        staging = self.in_schema(name)
        db.execute(f'CREATE UNLOGGED TABLE {staging} (LIKE {self.table}, "{_ATTEMPT}" text)')
        for column in self.columns(db):
            db.execute(f"ALTER TABLE {staging} ALTER COLUMN {_quoted(column)} DROP NOT NULL")
        return staging


@dataclasses.dataclass(frozen=True, slots=True)
class _Copy:
    """Runs in a task: copies a part into the staging table; returns the number of the attempt."""

    target: _Target
    staging: str

    def __call__(self, part: Part) -> str:
        attempt = uuid.uuid4().hex
        names = [column.name for column in part.row_type.columns]
        with self.target.connection() as db:
            types = self.target.columns(db)
            columns = f'{self.target.names(part.row_type)}, "{_ATTEMPT}"'
            with db.cursor().copy(f"COPY {self.staging} ({columns}) FROM STDIN") as copy:
                for batch in part.batches():
                    for row in batch.to_pylist():
                        copy.write_row([*(copied(row[name], types[name], name) for name in names), attempt])
        return attempt


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _without_secrets(dsn: str) -> str:
    hidden = re.sub(r"(password\s*=\s*)('(?:[^'\\]|\\.)*'|[^\s&]+)", r"\1…", dsn)
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:…@", hidden)
