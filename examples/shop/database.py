"""A service's database: SQLite in a file of its own, or PostgreSQL in a schema of its own.

A transaction is a function that gets a `Transaction` and has no other effects, because it may be called again: after a lost
optimistic lock, or when the database was away. SQL is written for both databases, with `?` for values.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

log = logging.getLogger("shop")

ATTEMPTS = 3
PATIENCE_S = 30.0
"""Time for which a transaction waits for a database that is away."""


class Conflict(Exception):
    """A lost optimistic lock: a row was changed by another process after it was read."""


class Transaction:
    """The statements of one transaction."""

    def __init__(self, connection: Any, value_mark: str) -> None:
        self._connection, self._value_mark = connection, value_mark

    def execute(self, sql: str, *values: Any) -> int:
        """Return the number of rows that were written."""
        return int(self._cursor(sql, values).rowcount)

    def change(self, sql: str, *values: Any) -> None:
        """Write exactly one row, which the statement finds by its version. Raises Conflict if it has another one."""
        if self.execute(sql, *values) != 1:
            raise Conflict(sql)

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self._cursor(sql, values).fetchall())

    def row(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        return next(iter(self.rows(sql, *values)), None)

    def _cursor(self, sql: str, values: tuple[Any, ...]) -> Any:
        return self._connection.execute(sql.replace("?", self._value_mark), values)


class Database:
    """The database of one service. Its transactions run one by one, in a thread, so that the event loop does not wait."""

    def __init__(self, where: str, service: str, tables: str) -> None:
        """`where`: a folder, or postgresql://... `tables`: CREATE TABLE IF NOT EXISTS statements, separated by `;`."""
        self._where, self._service, self._tables = where, service, tables
        self._is_postgresql = where.startswith("postgresql://")
        self._thread = ThreadPoolExecutor(1, f"database-{service}")
        self._connection: Any = None

    async def run(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` as one transaction; see `transact`."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: self.transact(work, *args, **kwargs))

    def transact(self, work: Callable[Concatenate[Transaction, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` as one transaction, in this thread. An exception rolls it back.

        After a Conflict it is run again, with three attempts in all. Raises ConnectionError if the database stays away; then
        it is unknown whether the transaction was committed.
        """
        attempts, end_s = 0, time.monotonic() + PATIENCE_S
        while True:
            try:
                return self._attempt(lambda transaction: work(transaction, *args, **kwargs))
            except Conflict:
                attempts += 1
                if attempts == ATTEMPTS:
                    raise
            except self._away as failure:
                log.warning("the database of %s is away: %s", self._service, failure)
                self.close()
                if time.monotonic() > end_s:
                    raise ConnectionError(f"the database of {self._service} is away: {failure}") from failure
                time.sleep(0.2)

    def _attempt(self, work: Callable[[Transaction], T]) -> T:
        if self._connection is None:
            self._connection = self._connect()
        connection = self._connection
        connection.execute("BEGIN" if self._is_postgresql else "BEGIN IMMEDIATE")
        try:
            result = work(Transaction(connection, "%s" if self._is_postgresql else "?"))
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return result

    @property
    def _away(self) -> type[Exception]:
        """The exception of a database that is away, busy or starting."""
        if not self._is_postgresql:
            return sqlite3.OperationalError
        import psycopg  # pip install 'psycopg[binary]'

        return psycopg.OperationalError

    def _connect(self) -> Any:
        connection: Any
        if self._is_postgresql:
            import psycopg

            schema = f"shop_{self._service}"
            connection = psycopg.connect(self._where, autocommit=True, options=f"-c search_path={schema}")
            connection.execute(
                "SELECT pg_advisory_lock(hashtext(%s))", [schema]
            )  # another process may create the tables now
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        else:
            folder = Path(self._where)
            folder.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(folder / f"{self._service}.db", isolation_level=None, check_same_thread=False)
            connection.execute("PRAGMA journal_mode = WAL")  # readers, such as the auditor, do not wait for writers
        for statement in filter(str.strip, self._tables.split(";")):
            connection.execute(statement)
        if self._is_postgresql:
            connection.execute("SELECT pg_advisory_unlock_all()")
        return connection

    def close(self) -> None:
        """Close the connection; the next transaction opens another one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
