"""Checks of what users give to sinks.

Thread safety: pure functions.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from emberstate.errors import StateDeclarationError


def local_directory(sink: str, path: str | os.PathLike[str], why: str) -> Path:
    """The absolute path of a directory; `why` says what is wrong with an object store, and what to do instead.

    >>> local_directory("parquet", "file:///data/totals", "")
    PosixPath('/data/totals')
    """
    text = os.fspath(path)
    if "://" in text and not text.startswith("file://"):
        raise StateDeclarationError(
            f"{sink}({text!r}): expected a directory of a local or shared file system. {why}", option="path", found=text
        )
    return Path(text.removeprefix("file://")).absolute()  # tasks have other working directories


def column_names(option: str, given: Sequence[str]) -> tuple[str, ...]:
    """The columns of an option; a text, which is a sequence of letters, is rejected."""
    if isinstance(given, str):
        raise StateDeclarationError(
            f"{option}: expected a list of columns, got {given!r}. Write [{given!r}].", option=option, found=given
        )
    return tuple(given)
