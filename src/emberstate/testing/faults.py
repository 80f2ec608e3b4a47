"""Fault injection for storage: in the tests of this library, and of pipelines built on it.

- `FaultPlan` lists the faults: an error before or after a call takes effect (after: the reply is lost), a call held at
  a gate, a torn write, a kill.
- `FaultyStorage` applies a plan to the calls of any storage.
- `FaultyFileSystem` (`faulty_file_system`) applies a plan to the system calls of `LocalStorage`.

A point is `before-` or `after-` followed by an operation, such as `after-link` or `before-create_if_absent`. If the
environment variable EMBERSTATE_KILL_POINT names a point, the process kills itself there with SIGKILL; `point:n` means
the n-th time. Only plans read the variable, and production code has no plan.

Thread safety: that of the wrapped storage. Rules may be added to a plan in use.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from emberstate.errors import StorageError
from emberstate.storage.base import as_parts, explain
from emberstate.storage.interface import BytesLike, Paths, Storage, StorageOutcomeUnknownError, StorageStatistics

T = TypeVar("T")
When = Literal["before", "after"]

KILL_POINT = "EMBERSTATE_KILL_POINT"
_WRITES = ("write_new", "create_if_absent")


class SimulatedKill(BaseException):
    """Simulates the death of the process: later calls have no effect."""


class Gate:
    """Holds a call: the test waits for `reached`, acts, then sets `opened`. Raises `TimeoutError` after `seconds`."""

    def __init__(self, seconds: float = 300.0) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()
        self._seconds = seconds

    def __call__(self) -> None:
        self.reached.set()
        if not self.opened.wait(self._seconds):
            raise TimeoutError(errno.ETIMEDOUT, f"the test did not open the gate within {self._seconds} s")


@dataclass
class _Rule:
    operation: str | None
    path: re.Pattern[str]
    when: When
    act: Callable[[], None]
    wait: int  # matching calls until the rule acts
    forever: bool
    keep: int | None = None  # torn write: the number of bytes that become visible


class FaultPlan:
    """A list of faults. A rule without an operation matches every operation; `path` is a regular expression."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self.calls: list[tuple[str, str]] = []
        self.dead = False
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        if point := environment.get(KILL_POINT):
            name, _, nth = point.partition(":")
            self._at(name, lambda: os.kill(os.getpid(), signal.SIGKILL), int(nth or 1))

    def fail(
        self,
        error: int | BaseException,
        *,
        operation: str | None = None,
        path: str = "",
        nth: int = 1,
        when: When = "before",
        forever: bool = False,
    ) -> None:
        """Raise `error` at the n-th matching call, and with `forever` at all later ones; an int is an errno."""
        self._add(operation, path, when, lambda: _throw(error), nth, forever)

    def hold(
        self, gate: Gate, *, operation: str | None = None, path: str = "", nth: int = 1, when: When = "before"
    ) -> None:
        """Hold the n-th matching call at a gate."""
        self._add(operation, path, when, gate, nth, False)

    def tear(self, keep: int, *, operation: str = "write_new", path: str = "", nth: int = 1) -> None:
        """Write only the first `keep` bytes at the n-th matching call, then raise EIO."""
        self._add(operation, path, "before", lambda: _throw(errno.EIO), nth, False, keep)

    def kill_at(self, point: str, *, path: str = "", nth: int = 1) -> None:
        """Raise `SimulatedKill` at a point; later calls have no effect."""
        self._at(point, lambda: _throw(SimulatedKill(point)), nth, path)

    def around(
        self, operation: str, path: str, effect: Callable[[], T], torn: Callable[[int], object] | None = None
    ) -> T:
        """Run `effect` with the faults that the plan has for this call; `torn(n)` writes the first n bytes only."""
        with self._lock:
            self.calls.append((operation, path))
        self._act(operation, path, "before", torn)
        result = effect()
        self._act(operation, path, "after", None)
        return result

    def _at(self, point: str, act: Callable[[], None], nth: int, path: str = "") -> None:
        when, _, operation = point.partition("-")
        if when not in ("before", "after") or not operation:
            raise ValueError(f"expected a point such as after-link or before-write_new, got {point!r}")
        self._add(operation, path, "before" if when == "before" else "after", act, nth, False)

    def _add(
        self,
        operation: str | None,
        path: str,
        when: When,
        act: Callable[[], None],
        nth: int,
        forever: bool,
        keep: int | None = None,
    ) -> None:
        with self._lock:
            self._rules.append(_Rule(operation, re.compile(path), when, act, nth, forever, keep))

    def _act(self, operation: str, path: str, when: When, torn: Callable[[int], object] | None) -> None:
        due = []
        with self._lock:
            if self.dead:
                raise SimulatedKill("the simulated process is dead")
            for rule in self._rules:
                if rule.when == when and rule.operation in (None, operation) and rule.path.search(path):
                    rule.wait -= 1
                    if rule.wait == 0 or (rule.forever and rule.wait < 0):
                        due.append(rule)
        for rule in due:
            if rule.keep is not None and torn is not None:
                torn(rule.keep)
            try:
                rule.act()
            except SimulatedKill:
                with self._lock:
                    self.dead = True
                raise


def _throw(error: int | BaseException) -> None:
    raise OSError(error, os.strerror(error)) if isinstance(error, int) else error


class FaultyStorage(Storage):
    """Wraps a storage and applies a plan. The operations are the names of the methods."""

    def __init__(self, inner: Storage, plan: FaultPlan | None = None) -> None:
        self.inner = inner
        self.plan = FaultPlan() if plan is None else plan
        self.shared = inner.shared

    def write_new(self, path: str, data: BytesLike | Sequence[BytesLike]) -> None:
        whole = b"".join(as_parts(data))
        write = self.inner.write_new
        self._do("write_new", path, lambda: write(path, data), lambda keep: write(path, whole[:keep]))

    def create_if_absent(self, path: str, data: bytes) -> bool:
        create = self.inner.create_if_absent
        return self._do(
            "create_if_absent", path, lambda: create(path, data), lambda keep: create(path, data[:keep])
        )

    def read(self, path: str, *, limit: int | None = None) -> bytes:
        return self._do("read", path, lambda: self.inner.read(path, limit=limit))

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        return self._do("read_range", path, lambda: self.inner.read_range(path, offset, length))

    def size(self, path: str) -> int:
        return self._do("size", path, lambda: self.inner.size(path))

    def list(self, prefix: str = "") -> Paths:
        return self._do("list", prefix, lambda: self.inner.list(prefix))

    def delete(self, path: str) -> None:
        self._do("delete", path, lambda: self.inner.delete(path))

    def delete_all(self, paths: Iterable[str]) -> None:
        for path in paths:  # one by one: if one fails, the earlier ones are deleted
            self.delete(path)

    def ensure_durable(self, path: str) -> None:
        self._do("ensure_durable", path, lambda: self.inner.ensure_durable(path))

    def check_conditional_create(self) -> None:
        self._do("check_conditional_create", "", self.inner.check_conditional_create)

    def remove_leftovers(self, is_live: Callable[[str], bool]) -> int:
        return self._do("remove_leftovers", "", lambda: self.inner.remove_leftovers(is_live))

    def describe(self) -> str:
        return self.inner.describe()

    def statistics(self) -> StorageStatistics:
        return self.inner.statistics()

    def _do(
        self, operation: str, path: str, effect: Callable[[], T], torn: Callable[[int], object] | None = None
    ) -> T:
        done = False

        def carry_out() -> T:
            nonlocal done
            result = effect()
            done = True
            return result

        try:
            return self.plan.around(operation, path, carry_out, torn)
        except StorageError:
            raise
        except OSError as error:
            kind = StorageOutcomeUnknownError if done and operation in _WRITES else StorageError
            raise explain(error, f"{operation} {path} in {self.describe()}", kind, path=path or None) from error
