"""The form of the small files that decide something (manifests, claims, intents, pins): one line that says
what it is, how long and with which checksum, then canonical JSON.

    emberstate manifest 1 3f0c… 1234
    {"batch":…}

Invariants: `seal` and `open_sealed` are inverse; a file of which a byte was lost, added or changed is never
opened. `parse` trusts nothing: it checks types, sizes and names, so that even a file with a right checksum
cannot make a reader do what it must not.

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

#: The version of the form and of everything in it that this library writes.
FORMAT_VERSION: Final = 1

#: What a reader accepts at most, before it decodes anything; so nothing larger is written.
MAX_BYTES: Final = 64 * 1024 * 1024

_HEAD: Final = re.compile(rb"emberstate ([a-z]{1,20}) ([0-9]{1,9}) ([0-9a-f]{32}) ([0-9]{1,9})\n")
#: All that is sure about the first line of a later version.
_ANY_HEAD: Final = re.compile(rb"emberstate ([a-z]{1,20}) ([0-9]{1,9})[ \n]")
_HEAD_MAX: Final = 128

T = TypeVar("T", bound=msgspec.Struct)


def seal(what: str, content: msgspec.Struct) -> bytes:
    """The bytes of a small file.

    >>> class Note(msgspec.Struct):
    ...     text: str
    >>> open_sealed("note", seal("note", Note("hello")), Note)
    Note(text='hello')

    Raises:
        StateDeclarationError: a text in it is not Unicode.
        StorageError: it is larger than any reader accepts.
    """
    try:
        body = msgspec.json.encode(content, order="deterministic")
    except UnicodeEncodeError as error:
        raise StateDeclarationError(f"a {what} cannot be written: {error.object!r:.100} is not Unicode text") from None
    if len(body) > MAX_BYTES - _HEAD_MAX:
        raise StorageError(errno.EFBIG, f"a {what} of {len(body)} bytes is refused: readers take {MAX_BYTES} at most")
    return _head(what, FORMAT_VERSION, body) + body


def open_sealed(what: str, data: bytes, type_: type[T], *, name: str = "") -> T:
    """What `seal` was given; `name` is the file's, for messages.

    Raises:
        CorruptionError: it is not what was written.
        RestoreRefusedError: a later version wrote it.
    """
    where = name or what
    _refuse_later(what, data, where)
    match = _HEAD.match(data[:_HEAD_MAX])
    if match is None or match[1] != what.encode():
        raise CorruptionError(
            f"{where}: it does not begin as a {what} of emberstate: {bytes(data[:40])!r}. It is damaged, or not one"
        )
    body = data[match.end() :]
    if len(body) != int(match[4]) or checksum(body) != match[3].decode():
        raise CorruptionError(
            f"{where}: {len(body)} bytes follow its first line, where {int(match[4])} with checksum "
            f"{match[3].decode()} were written: it is damaged"
        )
    version = int(match[2])
    if version < 1 or _head(what, version, body) != match[0]:
        raise CorruptionError(f"{where}: its first line is not as it is written: it is damaged")
    return parse(body, type_, where)


def parse(body: bytes, type_: type[T], where: str) -> T:
    """The content of a small file, from its JSON; what it checks does not rest on the checksum."""
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{where}: its content makes no sense: {error!s:.300}") from None


class _Writer(msgspec.Struct):
    """What a later version's content may say about who wrote it."""

    library: str = ""


def _refuse_later(what: str, data: bytes, where: str) -> None:
    match = _ANY_HEAD.match(data[:_HEAD_MAX])
    if match is None or match[1] != what.encode() or int(match[2]) <= FORMAT_VERSION:
        return
    writer = _Writer()
    with contextlib.suppress(msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        writer = msgspec.json.decode(data.partition(b"\n")[2], type=_Writer)
    raise RestoreRefusedError(
        f"{where}: it has format version {int(match[2])}, written by emberstate {writer.library[:50] or 'unknown'}; "
        f"this reader reads up to version {FORMAT_VERSION}. Use the emberstate that wrote it, or a later one"
    )


def _head(what: str, version: int, body: bytes) -> bytes:
    return b"emberstate %s %d %s %d\n" % (what.encode(), version, checksum(body).encode(), len(body))
