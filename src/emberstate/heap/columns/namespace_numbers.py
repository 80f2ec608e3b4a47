"""Small numbers for the namespaces of a column table, such as windows: a column of numbers says which row is whose.

A number belongs to a namespace for as long as rows have it, alive or kept for a snapshot; then another gets it.

Invariants: `numbers` and `namespaces` are each other's inverse; a number without rows is free.

Thread safety: changed and read under the registry's lock, or by the owner's thread.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np

from emberstate.errors import InvariantError
from emberstate.heap.columns.layout import Array

_FREE: Any = object()


class NamespaceNumbers:
    """Numbers of namespaces, and how many rows each has.

    >>> numbers = NamespaceNumbers()
    >>> one = numbers.number("a")
    >>> numbers.add_rows(np.array([one, one]))
    >>> numbers.remove_rows(np.array([one, one]))
    >>> numbers.number("b") == one
    True
    """

    __slots__ = ("_free", "_namespaces", "_numbers", "_rows")

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._namespaces: list[Any] = []
        self._rows = np.zeros(4, np.int64)
        self._free: list[int] = []

    def number(self, namespace: Hashable) -> int:
        """The number of a namespace; a new one gets one. It lasts if `add_rows` follows."""
        found = self._numbers.get(namespace)
        if found is None:
            if self._free:
                found = self._free.pop()
                self._namespaces[found] = namespace
            else:
                found = len(self._namespaces)
                self._namespaces.append(namespace)
                if found == len(self._rows):
                    self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
            self._numbers[namespace] = found
        return found

    def find(self, namespace: Hashable) -> int:
        """The number of a namespace, or -1."""
        return self._numbers.get(namespace, -1)

    def namespace(self, number: int) -> Any:
        """The namespace of a number."""
        return self._namespaces[number]

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        """Namespaces with their numbers, in no order; some may only have rows that are not alive."""
        return iter(list(self._numbers.items()))

    def __len__(self) -> int:
        return len(self._numbers)

    def add_rows(self, numbers: Array) -> None:
        """Count one row more for each of `numbers`."""
        counts = np.bincount(numbers)
        self._rows[: len(counts)] += counts

    def remove_rows(self, numbers: Array) -> None:
        """Count one row less for each of `numbers`; a number without rows becomes free."""
        counts = np.bincount(numbers)
        self._rows[: len(counts)] -= counts
        for number in np.flatnonzero((self._rows[: len(counts)] == 0) & (counts > 0)).tolist():
            self._drop(number)

    def drop_unused(self) -> None:
        """Free the numbers that got no rows."""
        for number in [number for number in self._numbers.values() if not self._rows[number]]:
            self._drop(number)

    def _drop(self, number: int) -> None:
        del self._numbers[self._namespaces[number]]
        self._namespaces[number] = _FREE
        self._free.append(number)

    def check_invariants(self, numbers: Array) -> None:
        """Raise `InvariantError` unless the rows in use have these `numbers`, and the invariants hold."""
        counts = np.bincount(numbers, minlength=len(self._rows))
        if not np.array_equal(counts, self._rows):
            raise InvariantError(f"namespaces count {self._rows.tolist()} rows, there are {counts.tolist()}")
        if any(self._namespaces[number] != namespace for namespace, number in self._numbers.items()):
            raise InvariantError("the number of a namespace is another's")
        used = sorted(self._numbers.values())
        if sorted([*used, *self._free]) != list(range(len(self._namespaces))):
            raise InvariantError(f"namespace numbers {used} and free ones {self._free} are not all there are")
