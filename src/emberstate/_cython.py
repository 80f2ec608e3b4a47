"""Stands in for `cython` where hot modules run interpreted and Cython is not installed: it is needed to build only.

It has what interpreted modules call when they are loaded or run. Types such as `cython.int` stand in annotations, which
Python does not evaluate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

compiled = False


def cast(kind: type[T], value: T) -> T:
    """Return the value: only C needs to be told its type."""
    return value


def cclass(kind: type[T]) -> type[T]:
    """Return the class as it is."""
    return kind


final = no_gc = cclass


def freelist(size: int) -> Callable[[type[T]], type[T]]:
    """Return a decorator that returns the class as it is."""
    return cclass
