"""`ScalarEncoder` gives the codec's bytes and errors, for values of the codec's type and for any other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emberstate.codec import Codec, codec_for, key_codec_for, opaque_codec
from emberstate.errors import EmberstateError
from emberstate.state.cells import scalars
from emberstate.state.cells.scalars import encoder_of

CODECS = [codec_for(kind) for kind in (int, str, float, bool, bytes, int | None, list[int])]
CODECS += [key_codec_for(kind) for kind in (int, str, float)]
VALUES = (
    st.integers()
    | st.integers(-(2**64), 2**64)
    | st.sampled_from([sign * 2**n + more for n in range(65) for sign in (1, -1) for more in (-1, 0)])
    | st.text()
    | st.sampled_from(["", "a" * 31, "a" * 32, "a" * 255, "a" * 256, "é", "\ud800"])
    | st.floats()
    | st.booleans()
    | st.none()
    | st.binary()
)


def outcome(encode: Any, value: Any) -> object:
    """The bytes, or the error."""
    try:
        return encode(value)
    except EmberstateError as error:
        return type(error), str(error), repr(error.place)


@pytest.mark.parametrize("codec", CODECS, ids=repr)
@given(value=VALUES)
def test_as_the_codec(codec: Codec[Any], value: Any) -> None:
    """Catches: a value that is stored as other bytes, or one of another type that is stored at all."""
    assert outcome(encoder_of(codec).encode, value) == outcome(codec.encode, value)


def test_what_is_kept_as_bytes() -> None:
    """Catches: the bytes of an undeclared state, encoded once more."""
    kept = opaque_codec(codec_for(int).schema, "msgspec")
    assert encoder_of(kept).encode(b"\x07") == b"\x07"


def test_kinds_in_both_files() -> None:
    """Catches: a kind that compiled code takes for another."""
    declared = (Path(scalars.__file__).parent / "scalars.pxd").read_text(encoding="utf-8")
    numbers = {name.lower(): int(n) for name, n in re.findall(r"^    AS_(\w+) = (\d+)$", declared, re.MULTILINE)}
    assert numbers == scalars.KINDS
