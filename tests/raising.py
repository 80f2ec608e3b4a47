"""`raising`: what a block raises is checked by class and attributes, not by prose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar, Unpack

import pytest

from emberstate.errors import EmberstateError, Place

E = TypeVar("E", bound=EmberstateError)


@contextmanager
def raising(
    kind: type[E], word: str = "", *, errno: int | None = None, **place: Unpack[Place]
) -> Iterator[pytest.ExceptionInfo[E]]:
    """Expect an error that has at least these attributes. `word`, a regular expression, is for errors that differ in
    nothing else."""
    with pytest.raises(kind, match=word or None) as caught:
        yield caught
    found = caught.value.place
    assert {name: found.get(name) for name in place} == dict(place), str(caught.value)
    assert errno in (None, getattr(caught.value, "errno", None)), str(caught.value)
