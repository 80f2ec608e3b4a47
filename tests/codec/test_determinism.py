"""Equal state has equal bytes, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.codec import codec_for
from tests.codec.typed_values import cases
from tests.effort import examples

_SCRIPT = """
import dataclasses, enum, typing, hashlib
from emberstate.codec import codec_for

class Shade(enum.Enum):
    LIGHT = 1
    DARK = 2

@dataclasses.dataclass(frozen=True)
class Point:
    name: str
    tags: frozenset[str]

words = [str(i) * 3 for i in range(50)]
values = [
    (set[str], set(words)),
    (frozenset[tuple[str, int]], frozenset((w, len(w)) for w in words)),
    (dict[str, set[str]], {w: {w, w + "x", w + "y"} for w in set(words)}),
    (dict[tuple[str, ...], int], {(w, w): 1 for w in set(words)}),
    (dict[Shade, set[Shade]], {s: set(Shade) for s in set(Shade)}),
    (set[Point], {Point(w, frozenset({w, "a", "b"})) for w in words}),
    (dict[float, frozenset[bytes]], {float(len(w)): frozenset(x.encode() for x in words) for w in words}),
    (dict[typing.Optional[str], int], {w: 1 for w in {*words, None}}),
]
print(hashlib.sha256(b"".join(codec_for(t).encode(v) for t, v in values)).hexdigest())
"""


def _digest(seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_bytes_do_not_depend_on_the_hash_seed() -> None:
    """Would catch a set or dict written in hash order: every restart would seem to change all state."""
    assert len({_digest(seed) for seed in ("0", "1", "4242")}) == 1


def _reordered(value: Any) -> Any:
    """An equal value whose dicts and sets were filled in another order."""
    if type(value) is dict:
        return {key: _reordered(item) for key, item in reversed(value.items())}
    if type(value) in (set, frozenset):
        return type(value)(reversed(list(value)))
    if type(value) in (list, tuple):
        return type(value)(_reordered(item) for item in value)
    return value


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_bytes_do_not_depend_on_insertion_order(data: st.DataObject) -> None:
    """The same logical state must give the same bytes, however it came about."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    value = data.draw(case.values)
    assert codec.encode(value) == codec.encode(_reordered(value))


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_a_restored_value_has_the_bytes_it_was_restored_from(data: st.DataObject) -> None:
    """Catches: a value that is stored in another form once it was restored; slots that compare would disagree."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    stored = codec.encode(data.draw(case.values))
    assert codec.encode(codec.decode(stored)) == stored


def test_restored_dicts_are_sorted() -> None:
    """The order of a restored dict is documented: that of its keys."""
    codec = codec_for(dict[int, str])
    assert list(codec.decode(codec.encode({30: "c", -1: "a", 2: "b"}))) == [-1, 2, 30]
