"""The layout of keys in RocksDB: table, key group, key, namespace, and a rest that tells the pairs of an entry apart.

    table (2 bytes) ‖ key group (2 bytes) ‖ key ‖ namespace ‖ rest

All numbers are big-endian, so the key groups of a table are contiguous and ascend. Key and namespace are
encoded bytes preceded by their length (one byte, or 0xFF and four). The rest is empty for a value, a sequence
number for an element of a list, and the encoded user key for a map. So the pairs of an entry are contiguous too,
and share a prefix that no other entry's pairs have.

>>> entry = entry_prefix(b"\\x00\\x01", key_part(5, b"ann"), sized(b"w"))
>>> split(entry + b"rest")
(5, b'ann', b'w', b'rest')
>>> entry_of(entry + b"rest") == entry
True
"""

from __future__ import annotations

from typing import Final

#: Bytes before the key: table and key group.
HEAD: Final = 4
_LONG: Final = 255
_SHORT_LENGTHS: Final = tuple(bytes((length,)) for length in range(_LONG))


def table_prefix(number: int) -> bytes:
    """The prefix of all keys of a table."""
    return number.to_bytes(2, "big")


def group_prefix(table: bytes, key_group: int) -> bytes:
    """The prefix of all keys of a key group in a table."""
    return table + key_group.to_bytes(2, "big")


def sized(data: bytes) -> bytes:
    """Bytes preceded by their length."""
    length = len(data)
    if length < _LONG:
        return _SHORT_LENGTHS[length] + data
    return b"\xff" + length.to_bytes(4, "big") + data


def group_part(key_group: int) -> bytes:
    """A key group in a raw key."""
    return key_group.to_bytes(2, "big")


def key_part(key_group: int, key: bytes) -> bytes:
    """The part of a raw key that is the same for all states of a key."""
    return group_part(key_group) + sized(key)


def entry_prefix(table: bytes, part: bytes, namespace: bytes) -> bytes:
    """The prefix of all pairs of an entry; `part` is from `key_part`, `namespace` is `sized`."""
    return table + part + namespace


def _sized_end(raw: bytes, start: int) -> int:
    length = raw[start]
    if length < _LONG:
        return start + 1 + length
    return start + 5 + int.from_bytes(raw[start + 1 : start + 5], "big")


def entry_of(raw: bytes) -> bytes:
    """The entry prefix of a raw key."""
    return raw[: _sized_end(raw, _sized_end(raw, HEAD))]


def split(raw: bytes) -> tuple[int, bytes, bytes, bytes]:
    """Key group, key, namespace and rest of a raw key."""
    key_end = _sized_end(raw, HEAD)
    namespace_end = _sized_end(raw, key_end)
    key_start = HEAD + (1 if raw[HEAD] < _LONG else 5)
    namespace_start = key_end + (1 if raw[key_end] < _LONG else 5)
    group = int.from_bytes(raw[2:HEAD], "big")
    return group, raw[key_start:key_end], raw[namespace_start:namespace_end], raw[namespace_end:]


def unsized(data: bytes) -> tuple[bytes, bytes]:
    """The bytes that `sized` put at the beginning of `data`, and the rest."""
    end = _sized_end(data, 0)
    return data[1 if data[0] < _LONG else 5 : end], data[end:]


def successor(prefix: bytes) -> bytes:
    """The first key after all that begin with `prefix`.

    >>> successor(b"a\\xff"), successor(b"ab")
    (b'b', b'ac')
    """
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))
