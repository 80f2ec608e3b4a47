"""Bytes from nowhere: CodecError and nothing else; no hang, no memory, never a value of another type."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import resource
import time
import uuid
from typing import Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.codec import TypeSchema, codec_for, key_codec_for
from emberstate.errors import CodecError
from tests.codec.typed_values import Shade, canon, cases
from tests.effort import examples


@dataclasses.dataclass
class Item:
    a: int
    when: datetime.datetime
    price: decimal.Decimal
    tags: set[str]
    shade: Shade


class Row(NamedTuple):
    a: int
    b: str = "x"


class Bag(TypedDict):
    a: int
    b: NotRequired[float]


class Box(msgspec.Struct, tag=True):
    a: int


CODECS = [
    codec_for(type_)
    for type_ in (
        int,
        float,
        str,
        bytes,
        bool,
        datetime.datetime,
        datetime.time,
        datetime.timedelta,
        decimal.Decimal,
        uuid.UUID,
        Shade,
        Literal["a", 1],
        list[int],
        set[tuple[int, ...]],
        dict[str, int],
        dict[float, int],
        dict[tuple[int, str], Shade],
        Item,
        Row,
        Bag,
        Box,
        int | str | None,
    )
] + [key_codec_for(float), key_codec_for(tuple[int, float])]


def _decode(codec: Any, data: bytes) -> None:
    try:
        value = codec.decode(data)
    except CodecError:
        return
    codec.check_deep(value)  # whatever was accepted is a value of the type
    assert canon(codec.decode(codec.encode(value))) == canon(value)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.binary(max_size=40))
def test_random_bytes(data: bytes) -> None:
    """Would catch an exception of msgspec or of our own code that is not a CodecError."""
    for codec in CODECS:
        _decode(codec, data)


_plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.sampled_from(
        ["a", "b", "when", "NaN", "sNaN", "Infinity", "2020-01-01T00:00:00+05:00", "LIGHT", "12:00:00Z"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", "when", "price", "tags", "shade", "type"]), inner, max_size=5
        )
    ),
    max_leaves=6,
)


@settings(max_examples=examples(200), deadline=None)
@given(value=_plain)
def test_well_formed_bytes_of_another_shape(value: Any) -> None:
    """Valid MessagePack that no encoder of ours wrote: zones, NaNs, huge ints, missing and extra fields."""
    data = msgspec.msgpack.encode(value)
    for codec in CODECS:
        _decode(codec, data)


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_damaged_bytes(data: st.DataObject) -> None:
    """Truncations and bit flips of real encodings."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    encoded = codec.encode(data.draw(case.values))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(CodecError):
        codec.decode(encoded[:cut])
    with pytest.raises(CodecError):
        codec.decode(encoded + b"\x00")
    bit = data.draw(st.integers(0, len(encoded) * 8 - 1))
    flipped = bytearray(encoded)
    flipped[bit // 8] ^= 1 << bit % 8
    _decode(codec, bytes(flipped))


BOMBS = {
    "array of 2**32": b"\xdd\xff\xff\xff\xff",
    "array of 2**32 with an item": b"\xdd\xff\xff\xff\xff\x01",
    "map of 2**32": b"\xdf\xff\xff\xff\xff\xa1a\x01",
    "str of 2**32": b"\xdb\xff\xff\xff\xff",
    "bytes of 2**32": b"\xc6\xff\xff\xff\xff",
    "ext of 2**32": b"\xc9\xff\xff\xff\xff\xff",
    "arrays a million deep": b"\x91" * 10**6,
    "maps a million deep": b"\x81\xa1a" * 10**6,
    "unknown field a million deep": b"\x82\xa1a\x01\xa1z" + b"\x91" * 10**6,
    "huge decimal": msgspec.msgpack.encode("1E+" + "9" * 1000),
    "long decimal": msgspec.msgpack.encode("1" * 10**6),
    "huge duration": msgspec.msgpack.encode("P" + "9" * 1000 + "D"),
    "no bytes": b"",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    """Declared lengths and depths must cost nothing: time and memory follow the bytes that are there."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.thread_time()  # what others do on the machine does not count
    for codec in CODECS:
        # Long text is text, and a million digits are a million digits.
        if name.startswith(("huge", "long")) and codec.type in (str, int | str | None):
            continue
        if name == "long decimal" and codec.type is decimal.Decimal:
            continue
        with pytest.raises(CodecError):
            codec.decode(BOMBS[name])
    assert time.thread_time() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        (datetime.datetime, msgspec.msgpack.encode("2020-01-01T00:00:00+05:00")),
        (datetime.time, msgspec.msgpack.encode("12:00:00Z")),
        (decimal.Decimal, msgspec.msgpack.encode("NaN")),
        (int, msgspec.msgpack.encode(2**63)),
        (list[int], msgspec.msgpack.encode([2**64 - 1])),
        (set[float], msgspec.msgpack.encode([float("nan")])),
        (Shade, msgspec.msgpack.encode("PALE")),
        (int, None),
    ],
)
def test_what_msgspec_alone_would_take(type_: Any, data: Any) -> None:
    """Values that a codec refuses to write must not come in by reading."""
    with pytest.raises(CodecError):
        codec_for(type_).decode(data)


@settings(max_examples=examples(120), deadline=None)
@given(
    text=st.one_of(
        st.text(max_size=30),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.sampled_from(["int", "list", "union", "struct", "a", "enum"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        ["kind", "items", "fields", "members", "tag", "tag_field", "name", "type", "required"]
                    ),
                    inner,
                    max_size=5,
                )
            ),
            max_leaves=8,
        ).map(lambda plain: msgspec.json.encode(plain).decode()),
    )
)
def test_malformed_schemas(text: str) -> None:
    """Would catch a KeyError or the like from a schema that somebody edited."""
    try:
        schema = TypeSchema.from_json(text)
    except CodecError:
        return
    assert TypeSchema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"items":[' * 200 + "]}" * 200,
        '{"kind":"list"}',
        '{"kind":"union","items":[{"kind":"int"}]}',
        '{"kind":"dataclass","fields":[{"name":"a b","required":true,"type":{"kind":"int"}}]}',
        '{"kind":"int","fields":[{"name":"a","required":true,"type":{"kind":"int"}}]}',
        '{"kind":"enum"}',
        '{"kind":"enum","members":[1]}',
        '{"kind":"struct","tag":1}',
        '{"kind":5}',
        "null",
        "",
    ],
)
def test_schemas_that_make_no_sense(text: str) -> None:
    """Each is JSON that almost describes a type."""
    with pytest.raises(CodecError):
        TypeSchema.from_json(text)
