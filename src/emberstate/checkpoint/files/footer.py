"""The end of an Arrow IPC file: Arrow's footer, with our index and its own checksum in it.

pyarrow writes a footer only together with the file's last batch, and cannot add metadata that is known only then. So
this module makes it: Arrow's `Footer` table with the schema, the positions of the record batches, and our index as
custom metadata. The schema is the message that pyarrow serialised, unchanged (offsets in FlatBuffers are relative). The
first 16 bytes are a prefix that FlatBuffers allow and Arrow skips; it holds the checksum.

    0  u32  16 + 16: position of the Footer table     8  u32  CRC-32 of everything from byte 16 on
    4  4 bytes "EMB1"                                12  u32  0

Thread safety: pure functions.
"""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Sequence
from typing import Final

from emberstate.checkpoint.files.flatbuffers import FlatTable
from emberstate.checkpoint.files.limits import FileLimits
from emberstate.errors import CorruptionError

#: The beginning and (without padding) the end of an Arrow IPC file.
MAGIC: Final = b"ARROW1"
HEAD: Final = MAGIC + b"\0\0"
END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"

#: Footer length and magic.
TAIL: Final = struct.Struct("<i6s")

METADATA_KEY: Final = b"emberstate"
INDEX_KEY: Final = b"emberstate.index"

_PREFIX: Final = struct.Struct("<I4sII")
_OURS: Final = b"EMB1"
_TABLE_AT: Final = 32
_V5: Final = 4


@dataclasses.dataclass(frozen=True, slots=True)
class Footer:
    """The content of a footer."""

    metadata: bytes
    index: bytes
    #: (offset, length of the metadata with its prefix, length of the body) of every record batch.
    blocks: list[tuple[int, ...]]


def build_footer(schema_message: bytes, blocks: Sequence[tuple[int, int, int]], index: bytes) -> bytes:
    """Return the end of a file: footer, its length, the magic."""
    message = schema_message[8:]  # without the marker and the length
    schema_at = _header_of(message).position
    # vtable (14 bytes and padding), then the table: version, schema, dictionaries, record batches, metadata.
    parts = [struct.pack("<7H2x", 14, 24, 4, 8, 12, 16, 20)]
    batches_at = _TABLE_AT + 24 + 4  # after the empty vector of dictionaries
    vector = struct.pack("<I", len(blocks)) + b"".join(struct.pack("<qi4xq", *block) for block in blocks)
    pairs_at = batches_at + len(vector)
    pairs = _pair_vector(INDEX_KEY, index)
    message_at = -(-(pairs_at + len(pairs)) // 8) * 8
    fields_at = _TABLE_AT + 4
    parts.append(
        struct.pack(
            "<ih2xIIII",
            16,
            _V5,
            message_at + schema_at - (fields_at + 4),
            _TABLE_AT + 24 - (fields_at + 8),
            batches_at - (fields_at + 12),
            pairs_at - (fields_at + 16),
        )
    )
    parts += [struct.pack("<I", 0), vector, pairs, bytes(message_at - pairs_at - len(pairs)), message]
    body = b"".join(parts)
    body += bytes(-len(body) % 8)
    footer = _PREFIX.pack(_TABLE_AT, _OURS, zlib.crc32(body), 0) + body
    return footer + TAIL.pack(len(footer), MAGIC)


def footer_length(tail: bytes, size: int, limits: FileLimits) -> int:
    """Return the length of the footer, from a file's last bytes. Raises `CorruptionError` if there cannot be one."""
    if len(tail) < TAIL.size or size < len(HEAD) + len(END_OF_STREAM) + _PREFIX.size + TAIL.size:
        raise CorruptionError(f"a file of {size} bytes is too short to be a state file")
    length, magic = TAIL.unpack(tail[-TAIL.size :])
    if magic != MAGIC:
        raise CorruptionError(f"the file does not end as an Arrow IPC file: {magic!r}; it may be truncated")
    room = size - len(HEAD) - len(END_OF_STREAM) - TAIL.size
    if not _PREFIX.size <= length <= min(room, limits.footer_bytes):
        raise CorruptionError(
            f"the footer should have {length} bytes; the file has room for {room}, the limit is {limits.footer_bytes}",
            option="footer_bytes",
            expected=min(room, limits.footer_bytes),
            found=length,
        )
    return int(length)


def parse_footer(footer: bytes) -> Footer:
    """Return the content of a footer. Raises `CorruptionError` if it is damaged."""
    table_at, ours, checksum, zero = _PREFIX.unpack_from(footer)
    if (table_at, ours, zero) != (_TABLE_AT, _OURS, 0):
        raise CorruptionError("the footer does not begin as that of a state file: not written by emberstate?")
    if zlib.crc32(footer[_PREFIX.size :]) != checksum:
        raise CorruptionError("the footer does not have the checksum that it was written with")
    table = FlatTable.root(memoryview(footer))
    schema = table.table(1)
    metadata = {} if schema is None else schema.pairs(2)
    index = table.pairs(4)
    if METADATA_KEY not in metadata or INDEX_KEY not in index:
        raise CorruptionError(f"the file lacks {METADATA_KEY.decode()!r} or {INDEX_KEY.decode()!r}")
    return Footer(metadata[METADATA_KEY], index[INDEX_KEY], table.structs(3, "<qi4xq"))


def _header_of(message: bytes) -> FlatTable:
    header = FlatTable.root(memoryview(message)).table(2)
    if header is None:
        raise CorruptionError("an Arrow message without a header")
    return header


def _pair_vector(key: bytes, value: bytes) -> bytes:
    """Return a vector of one KeyValue table; it must begin at a multiple of 4."""
    # at 0: count, offset of the table; 8: vtable; 16: table (vtable 8 before, key, value); 28: strings
    key_string = _string(key)
    table = struct.pack("<iII", 8, 28 - 20, 28 + len(key_string) - 24)
    return struct.pack("<II", 1, 16 - 4) + struct.pack("<4H", 8, 12, 4, 8) + table + key_string + _string(value)


def _string(text: bytes) -> bytes:
    encoded = struct.pack("<I", len(text)) + text + b"\0"
    return encoded + bytes(-len(encoded) % 4)
