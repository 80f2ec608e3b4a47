"""The form of manifests, claims, intents and pins: one line with the kind, format version, checksum and length, then
canonical JSON. Segments of the history have the same line before other bytes.

    emberstate manifest 1 3f0c… 1234
    {"batch":…}

Invariants: `seal` and `open_sealed` are inverse; a file with a byte lost, added or changed is never opened. `parse`
trusts nothing: it checks types, sizes and names, so that even a hostile file with a right checksum does no harm.

Thread safety: pure functions.
"""

from __future__ import annotations

import contextlib
import errno
import re
from typing import Final, TypeVar

import msgspec

from emberstate.errors import CorruptionError, RestoreRefusedError, StateDeclarationError, StorageError
from emberstate.storage.checksums import checksum

#: The version of the form, and of all content, that this library writes.
FORMAT_VERSION: Final = 1

#: The largest file that a reader accepts, before it decodes anything, and a writer writes.
MAX_BYTES: Final = 64 * 1024 * 1024

_HEAD: Final = re.compile(rb"emberstate ([a-z]{1,20}) ([0-9]{1,9}) ([0-9a-f]{32}) ([0-9]{1,9})\n")
#: The part of the first line that every later version keeps.
_ANY_HEAD: Final = re.compile(rb"emberstate ([a-z]{1,20}) ([0-9]{1,9})[ \n]")
_HEAD_MAX: Final = 128
#: The place that msgspec's messages end with.
_FIELD: Final = re.compile(r" - at `(.+)`$")

T = TypeVar("T", bound=msgspec.Struct)


def seal(what: str, content: msgspec.Struct) -> bytes:
    """Return the bytes of a file.

    >>> class Note(msgspec.Struct):
    ...     text: str
    >>> open_sealed("note", seal("note", Note("hello")), Note)
    Note(text='hello')

    Raises:
        StateDeclarationError: a text in it is not Unicode.
        StorageError: it is larger than readers accept.
    """
    try:
        body = msgspec.json.encode(content, order="deterministic")
    except UnicodeEncodeError as error:
        text = f"{error.object!r:.100}"
        raise StateDeclarationError(f"a {what} cannot be written: {text} is not Unicode text", found=text) from None
    if len(body) > MAX_BYTES - _HEAD_MAX:
        why = f"a {what} of {len(body)} bytes is too large: readers accept {MAX_BYTES}"
        raise StorageError(errno.EFBIG, why, expected=MAX_BYTES, found=len(body))
    return seal_bytes(what, body)


def seal_bytes(what: str, body: bytes) -> bytes:
    """Return the bytes of a file whose body is not one JSON object."""
    return _head(what, FORMAT_VERSION, body) + body


def open_sealed(what: str, data: bytes, type_: type[T], *, name: str = "") -> T:
    """Return the content that `seal` was given; `name` is the file's, for messages.

    Raises:
        CorruptionError: it is damaged.
        RestoreRefusedError: a later version wrote it.
    """
    return parse(open_bytes(what, data, name=name), type_, name or what)


def open_bytes(what: str, data: bytes, *, name: str = "") -> bytes:
    """Return the body that `seal_bytes` was given. Raises as `open_sealed` does."""
    where = name or what
    _refuse_later(what, data, where)
    match = _HEAD.match(data[:_HEAD_MAX])
    if match is None or match[1] != what.encode():
        raise CorruptionError(
            f"{where}: expected the first line of a {what}, found {bytes(data[:40])!r}. The file is damaged.",
            path=name or None,
            expected=what,
            found=bytes(data[:40]),
        )
    body = data[match.end() :]
    expected, found = (int(match[4]), match[3].decode()), (len(body), checksum(body))
    if expected != found:
        raise CorruptionError(
            f"{where}: expected {expected[0]} bytes with checksum {expected[1]} after the first line, found "
            f"{found[0]} with {found[1]}. The file is damaged.",
            path=name or None,
            expected=expected,
            found=found,
        )
    version = int(match[2])
    if version < 1 or _head(what, version, body) != match[0]:
        raise CorruptionError(f"{where}: its first line is not canonical. The file is damaged.", path=name or None)
    return body


def parse(body: bytes, type_: type[T], where: str) -> T:
    """Return the content of a file from its JSON. Its checks do not rely on the checksum."""
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        what = f"{where}: its content is malformed: {error!s:.300}"
        raise CorruptionError(what, path=where, field=field_in(error)) from None


def field_in(error: Exception) -> str | None:
    """Return the place within the content that msgspec names in an error."""
    at = _FIELD.search(str(error))
    return None if at is None else at[1]


class _Writer(msgspec.Struct):
    """The library version in a later version's content, if it is there."""

    library: str = ""


def _refuse_later(what: str, data: bytes, where: str) -> None:
    match = _ANY_HEAD.match(data[:_HEAD_MAX])
    if match is None or match[1] != what.encode() or int(match[2]) <= FORMAT_VERSION:
        return
    writer = _Writer()
    with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        writer = msgspec.json.decode(data.partition(b"\n")[2], type=_Writer)
    raise RestoreRefusedError(
        f"{where}: expected format version {FORMAT_VERSION} or earlier, found {int(match[2])}, written by emberstate "
        f"{writer.library[:50] or 'unknown'}. Use the emberstate that wrote it, or a later one.",
        path=where,
        expected=FORMAT_VERSION,
        found=int(match[2]),
    )


def _head(what: str, version: int, body: bytes) -> bytes:
    return b"emberstate %s %d %s %d\n" % (what.encode(), version, checksum(body).encode(), len(body))
