"""Loading runs no code: not with typed codecs, and with pickle only what its user listed."""

from __future__ import annotations

import collections
import dataclasses
import enum
import os
import pathlib
import pickle
import sys
from typing import Any

import pytest

from emberstate.codec import codec_for, compare, key_codec_for, pickle_codec
from emberstate.errors import CodecError, StateDeclarationError, StateTypeError
from emberstate.runtime.functions.domain_timers import TimeDomain
from emberstate.state.ttl.config import TtlUpdate
from tests.raising import raising


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


class Shade(enum.Enum):
    LIGHT = 1


@dataclasses.dataclass
class Point:
    x: int


class Bomb:
    """Touches a file when it is unpickled."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.open, (self.path, os.O_CREAT))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_never_executed(tmp_path: pathlib.Path, protocol: int) -> None:
    """The sentinel file would exist if any codec had run what the bytes say."""
    sentinel = tmp_path / "sentinel"
    for payload in (Bomb(sentinel), [Plain(Bomb(sentinel))], {"a": (Bomb(sentinel),)}):
        data = pickle.dumps(payload, protocol)
        for codec in (
            codec_for(bytes),
            codec_for(dict[str, int]),
            codec_for(Point),
            key_codec_for(str),
            pickle_codec(),
            pickle_codec(Plain),
            pickle_codec(allow=[__name__]),
        ):
            with pytest.raises(CodecError):
                codec.decode(data)
    assert not sentinel.exists()
    with raising(CodecError, option="allow", found=f"{os.open.__module__}.open"):
        pickle_codec().decode(pickle.dumps(Bomb(sentinel)))


@pytest.mark.parametrize(
    ("module", "name"),
    [
        (__name__, "os.system"),
        (__name__, "os"),
        (__name__, "sys.modules"),
        (__name__, "pickle.loads"),
        (__name__, "pathlib.Path"),
        (__name__, "Plain.__init__"),
        (__name__, "pickle_codec"),
        (__name__, "codec_for"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("builtins", "__import__"),
        ("os", "system"),
        ("datetime", "sys.modules"),
        ("collections", "_sys.exit"),
        ("functools", "partial"),
        ("operator", "attrgetter"),
    ],
)
def test_an_allowed_module_opens_no_way_to_others(module: str, name: str) -> None:
    """A listed module imports others: dotted names and functions must not lead through it."""
    data = (
        b"\x80\x04\x8c"
        + bytes([len(module)])
        + module.encode()
        + b"\x8c"
        + bytes([len(name)])
        + name.encode()
        + b"\x93."
    )
    with raising(CodecError, option="allow", found=f"{module}.{name}"):
        pickle_codec(allow=[__name__]).decode(data)
    assert sys.modules["os"] is os


def test_what_could_not_be_loaded_is_not_written() -> None:
    """Would catch a value that is committed and then refused at restore."""
    with raising(StateTypeError, r"test_pickle\.Plain", field="$"):
        pickle_codec().encode([Plain(1)])
    with raising(StateTypeError, field="$"):
        pickle_codec().encode(lambda: 1)
    with raising(StateTypeError, "print", field="$"):
        pickle_codec().encode(print)
    with raising(StateTypeError, "Point", field="$"):
        pickle_codec(Point).encode(1)
    with raising(StateDeclarationError, "5"):
        pickle_codec(allow=[5])


@pytest.mark.parametrize(
    ("codec", "value"),
    [
        (pickle_codec(Point), Point(1)),
        (pickle_codec(allow=[Point, Shade]), {"a": [Point(1), Shade.LIGHT]}),
        (pickle_codec(allow=[__name__]), [Point(1), Shade.LIGHT]),
        (pickle_codec(collections.OrderedDict), collections.OrderedDict(a=1)),
        (pickle_codec(dict), {"a": {1, 2}, "b": frozenset({3}), "c": bytearray(b"x"), "d": 1j, "e": 10**50}),
        (pickle_codec(), None),
    ],
)
def test_round_trip_and_copy(codec: Any, value: Any) -> None:
    """Would catch an allow-list that refuses what its user listed, or a copy that shares."""
    again = codec.decode(codec.encode(value))
    assert again == value and type(again) is type(value)
    assert codec.copy(value) == value
    assert codec.same(value, again) and not codec.immutable
    codec.check_deep(value)
    travelled = pickle.loads(pickle.dumps(codec))
    assert travelled.decode(codec.encode(value)) == value


def test_copy_is_independent() -> None:
    """A copy by identity would let a snapshot change."""
    value = [[1]]
    pickle_codec(list).copy(value)[0].append(2)
    assert value == [[1]]


@pytest.mark.parametrize("data", [b"", b"\x80", b"garbage", pickle.dumps(1)[:-1], pickle.dumps([1])])
def test_bad_bytes(data: bytes) -> None:
    """CodecError only, also for a pickle of another class."""
    with pytest.raises(CodecError):
        pickle_codec(Point).decode(data)


def test_changing_the_codec_is_refused() -> None:
    """Bytes of one codec mean nothing to the other."""
    for stored, present in [(pickle_codec(int), codec_for(int)), (codec_for(int), pickle_codec(int))]:
        verdict = compare(stored.schema, present)
        assert verdict.kind == "refused" and "codec" in verdict.reason
    assert compare(pickle_codec(int).schema, pickle_codec(int)).kind == "compatible"


@pytest.mark.parametrize(
    ("value", "module", "before"),
    [
        (TimeDomain.EVENT, "emberstate.runtime.functions.domain_timers", "emberstate.runtime.domain_timers"),
        (TtlUpdate.ON_READ_AND_WRITE, "emberstate.state.ttl.config", "emberstate.state.ttl"),
    ],
)
def test_pickles_name_classes_where_they_were(value: Any, module: str, before: str) -> None:
    """Catches: state of an earlier version that cannot be read because a class of the library has moved."""
    data = pickle.dumps(value, 0).replace(module.encode(), before.encode())
    assert before.encode() in data and module.encode() not in data
    for allowed in (before, module, type(value)):
        codec = pickle_codec(allow=[allowed])
        assert codec.decode(data) is value
        assert codec.decode(codec.encode(value)) is value
