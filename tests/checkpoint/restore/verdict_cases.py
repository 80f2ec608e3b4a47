"""What a program can have become between two starts: the cases of the verdict table."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from emberstate.codec import codec_for, pickle_codec
from emberstate.state.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.ttl.config import TtlConfig, TtlTime
from tests.checkpoint.files.state_file_world import Mean


@dataclasses.dataclass
class Order:
    """A value as it was."""

    id: int
    amount: float


@dataclasses.dataclass
class Purchase:
    """The same under another name."""

    id: int
    amount: float


class Moved:
    """Another place for a class."""

    @dataclasses.dataclass
    class Order:
        id: int
        amount: float


@dataclasses.dataclass
class WithNote:
    """A field more, with a default."""

    id: int
    amount: float
    note: str = "none"


@dataclasses.dataclass
class WithoutDefault:
    """A field more, without."""

    id: int
    amount: float
    note: str


@dataclasses.dataclass
class WithoutAmount:
    """A field less."""

    id: int


@dataclasses.dataclass
class Retyped:
    """A field of another type."""

    id: int
    amount: str


@dataclasses.dataclass
class Renamed:
    """A field under another name."""

    id: int
    total: float = 0.0


@dataclasses.dataclass
class RenamedAndAgain:
    """A field under another name, and another one under its old name."""

    id: int
    total: float = 0.0
    amount: float = 0.0


class Place(NamedTuple):
    """A user key or namespace with fields."""

    x: int
    y: int


class Spot(NamedTuple):
    """The same, a field renamed."""

    x: int
    height: int


HOUR = timedelta(hours=1)
Declaration = StateDescriptor | tuple[StateDescriptor, Any] | tuple[str, Any]  # a queue: (name, namespace type)


def value(name: str, type_: Any, **options: Any) -> StateDescriptor:
    return ValueStateDescriptor(name, type_, **options)


@dataclasses.dataclass(frozen=True)
class Case:
    """A program before and after, and what is to come of it."""

    before: list[Declaration]
    after: list[Declaration]
    kind: str
    states: Mapping[str, str]
    says: str = ""  # a regular expression that the verdict's text matches
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    key: Any = str
    groups: int = 4
    content: Callable[[Any], Any] | None = None  # of the restored "v" of key "k": what it is


ORDER = value("v", Order)
INT = value("v", int)
TOTAL = value("total", int)
TTL = TtlConfig(HOUR)
WINDOWS: Declaration = ("windows", tuple[int, int])

CASES: dict[str, Case] = {
    "the same": Case([ORDER], [ORDER], "compatible", {"v": "compatible"}),
    "class renamed": Case([ORDER], [value("v", Purchase)], "compatible", {"v": "compatible"}),
    "class moved": Case([ORDER], [value("v", Moved.Order)], "compatible", {"v": "compatible"}),
    "class deleted": Case([ORDER], [], "refused", {"v": "refused"}, "not declared.*drop_states.*keep_states"),
    "field added": Case(
        [ORDER], [value("v", WithNote)], "migrates", {"v": "migrates"}, "added `note`",
        content=lambda v: v == WithNote(7, 2.5, "none"),
    ),
    "field added without default": Case([ORDER], [value("v", WithoutDefault)], "refused", {"v": "refused"}, "`note`"),
    "field removed": Case(
        [ORDER], [value("v", WithoutAmount)], "migrates", {"v": "migrates"}, "removed `amount`",
        content=lambda v: v == WithoutAmount(7),
    ),
    "field retyped": Case([ORDER], [value("v", Retyped)], "refused", {"v": "refused"}, "`amount` was float and is now"),
    "field renamed, not said": Case(
        [ORDER], [value("v", Renamed)], "migrates", {"v": "migrates"}, "if `amount` became `total`, say so",
        content=lambda v: v == Renamed(7, 0.0),
    ),
    "field renamed": Case(
        [ORDER], [value("v", Renamed)], "migrates", {"v": "migrates"}, "renamed `amount` → `total`",
        {"rename_fields": {"v": {"amount": "total"}}}, content=lambda v: v == Renamed(7, 2.5),
    ),
    "field renamed, still there": Case(
        [ORDER], [value("v", RenamedAndAgain)], "refused", {"rename_fields of v": "refused"}, "still has `amount`",
        {"rename_fields": {"v": {"amount": "total"}}},
    ),
    "field renamed to nothing": Case(
        [ORDER], [value("v", Purchase)], "refused", {"v": "refused"}, "`sum`, which the type does not have",
        {"rename_fields": {"v": {"id": "sum"}}},
    ),
    "fields swapped": Case(
        [ORDER], [ORDER], "refused", {"rename_fields of v": "refused"}, "at two starts",
        {"rename_fields": {"v": {"id": "amount", "amount": "id"}}},
    ),
    "rename of no field": Case(
        [ORDER], [ORDER], "refused", {"rename_fields of v": "refused"}, "`amuont` names no stored field",
        {"rename_fields": {"v": {"amuont": "total"}}},
    ),
    "rename of fields of no state": Case(
        [ORDER], [ORDER], "refused", {"rename_fields": "refused"}, "'w' names no stored state",
        {"rename_fields": {"w": {"amount": "total"}}},
    ),
    "type widened": Case([INT], [value("v", int | None)], "compatible", {"v": "compatible"}, "may now also be None"),
    "type changed": Case([INT], [value("v", str)], "refused", {"v": "refused"}, "was int and is now str"),
    "codec changed": Case(
        [INT], [value("v", pickle_codec(int))], "refused", {"v": "refused"}, "by the msgspec codec.*with pickle"
    ),
    "codec changed back": Case(
        [value("v", pickle_codec(int))], [INT], "refused", {"v": "refused"}, "by the pickle codec.*with msgspec"
    ),
    "key type changed": Case([INT], [INT], "refused", {"key schema": "refused"}, "keys were.*bigint", key=int),
    "max parallelism changed": Case(
        [INT], [INT], "refused", {"max parallelism": "refused"}, "was 4 and is now 8", groups=8
    ),
    "value to map": Case(
        [INT], [MapStateDescriptor("v", str, int)], "refused", {"v": "refused"}, "was a value state and is now a map"
    ),
    "value to reducing": Case(
        [INT], [ReducingStateDescriptor("v", max, int)], "refused", {"v": "refused"}, "was a value state"
    ),
    "map to list": Case(
        [MapStateDescriptor("v", str, int)], [ListStateDescriptor("v", int)], "refused", {"v": "refused"}, "a map state"
    ),
    "user key changed": Case(
        [MapStateDescriptor("v", str, int)], [MapStateDescriptor("v", int, int)], "refused", {"v": "refused"},
        "its user key type: the value was str",
    ),
    "user key's field renamed": Case(
        [MapStateDescriptor("v", Place, int)], [MapStateDescriptor("v", Spot, int)], "migrates", {"v": "migrates"},
        "its user key type: renamed `y` → `height`", {"rename_fields": {"v": {"y": "height"}}},
        content=lambda v: v == {Spot(1, 2): 7},
    ),
    "namespace changed": Case(
        [INT], [(INT, int)], "refused", {"v": "refused"}, "its namespace type: the value was str"
    ),
    "state added": Case([INT], [INT, TOTAL], "compatible", {"v": "compatible", "total": "new"}),
    "state removed": Case([INT, TOTAL], [INT], "refused", {"v": "compatible", "total": "refused"}, "not declared"),
    "state dropped": Case(
        [INT, TOTAL], [INT], "migrates", {"v": "compatible", "total": "dropped"}, "", {"drop_states": ["total"]},
        content=lambda v: v == 7,
    ),
    "state kept": Case(
        [INT, TOTAL], [INT], "compatible", {"v": "compatible", "total": "kept"}, "", {"keep_states": ["total"]}
    ),
    "state renamed": Case(
        [TOTAL], [INT], "migrates", {"v": "migrates"}, "renamed from 'total'", {"rename_states": {"total": "v"}},
        content=lambda v: v == 7,
    ),
    "state and its field renamed": Case(
        [value("total", Order)], [value("v", Renamed)], "migrates", {"v": "migrates"}, "renamed `amount`",
        {"rename_states": {"total": "v"}, "rename_fields": {"total": {"amount": "total"}}},
        content=lambda v: v == Renamed(7, 2.5),
    ),
    "fields named by the new name of the state": Case(
        [value("total", Order)], [value("v", Renamed)], "refused", {"rename_fields": "refused"}, "names no stored",
        {"rename_states": {"total": "v"}, "rename_fields": {"v": {"amount": "total"}}},
    ),
    "state's case changed": Case(
        [TOTAL], [value("Total", int)], "refused", {"total": "refused", "Total": "new"},
        "declared is 'Total', which differs only in case.*rename_states={'total': 'Total'}",
    ),
    "state misspelt": Case(
        [value("customers", int)], [value("costumers", int)], "refused", {"customers": "refused"}, "'costumers'"
    ),
    "drop of nothing": Case(
        [INT], [INT], "refused", {"drop_states": "refused"}, r"'V' names no stored state \(did you mean 'v'\?\)",
        {"drop_states": ["V"]},
    ),
    "keep of nothing": Case(
        [INT], [INT], "refused", {"keep_states": "refused"}, "names no stored state", {"keep_states": ["x"]}
    ),
    "rename of nothing": Case(
        [INT], [INT, TOTAL], "refused", {"rename_states": "refused"}, "names no stored state",
        {"rename_states": {"x": "total"}},
    ),
    "rename to nothing": Case(
        [INT], [], "refused", {"rename_states": "refused"}, "which is not declared", {"rename_states": {"v": "w"}}
    ),
    "rename to what is there": Case(
        [INT, TOTAL], [TOTAL], "refused", {"rename_states": "refused"}, "both are stored",
        {"rename_states": {"v": "total"}},
    ),
    "two renamed to one": Case(
        [INT, TOTAL], [value("w", int)], "refused", {"rename_states": "refused"}, "more than one state becomes 'w'",
        {"rename_states": {"v": "w", "total": "w"}},
    ),
    "states swapped": Case(
        [INT, TOTAL], [INT, TOTAL], "refused", {"rename_states": "refused"}, "is declared as well",
        {"rename_states": {"v": "total", "total": "v"}},
    ),
    "dropped and declared": Case(
        [INT], [MapStateDescriptor("v", str, int)], "refused", {"drop_states": "refused"}, "is declared as well",
        {"drop_states": ["v"]},
    ),
    "kept and declared": Case(
        [INT], [INT], "refused", {"keep_states": "refused"}, "is declared as well", {"keep_states": ["v"]}
    ),
    "dropped and kept": Case(
        [INT], [], "refused", {"keep_states": "refused"}, "'v' is in drop_states as well",
        {"keep_states": ["v"], "drop_states": ["v"]},
    ),
    "dropped and renamed": Case(
        [INT], [TOTAL], "refused", {"rename_states": "refused"}, "'v' is in drop_states as well",
        {"rename_states": {"v": "total"}, "drop_states": ["v"]},
    ),
    "a name that is none": Case(
        [INT], [INT], "refused", {"options": "refused"}, "cannot name a state", {"drop_states": ["a/b"]}
    ),
    "time to live on": Case(
        [INT], [value("v", int, ttl=TTL)], "migrates", {"v": "migrates"}, "time to live switched on",
        content=lambda v: v == 7,
    ),
    "time to live off": Case(
        [value("v", int, ttl=TTL)], [INT], "migrates", {"v": "migrates"}, "switched off", content=lambda v: v == 7
    ),
    "time to live longer": Case(
        [value("v", int, ttl=TTL)], [value("v", int, ttl=TtlConfig(2 * HOUR))], "migrates", {"v": "migrates"},
        "was 1:00:00 and is now 2:00:00",
    ),
    "time to live by another clock": Case(
        [value("v", int, ttl=TTL)], [value("v", int, ttl=TtlConfig(HOUR, time=TtlTime.EVENT))], "refused",
        {"v": "refused"}, "processing time and is now in event time",
    ),
    "queue made": Case([("event", str)], [], "compatible", {"timers/event": "compatible"}, "made"),
    "queue dropped": Case(
        [("event", str)], [], "migrates", {"timers/event": "dropped"}, "", {"drop_states": ["timers/event"]}
    ),
    "queue renamed": Case(
        [("event", str)], [("later", str)], "migrates", {"timers/later": "migrates"}, "renamed from 'event'",
        {"rename_states": {"timers/event": "timers/later"}},
    ),
    "queue of windows not declared": Case([WINDOWS], [], "refused", {"timers/windows": "refused"}, "not declared"),
    "queue of windows kept": Case(
        [WINDOWS], [], "compatible", {"timers/windows": "kept"}, "", {"keep_states": ["timers/windows"]}
    ),
    "queue's namespaces changed": Case(
        [WINDOWS], [("windows", str)], "refused", {"timers/windows": "refused"}, "its timer type"
    ),
    "a queue is no state": Case(
        [("event", str)], [("event", str)], "refused", {"drop_states": "refused"}, "names no stored",
        {"drop_states": ["event"]},
    ),
    "accumulator changed": Case(
        [AggregatingStateDescriptor("v", Mean(), tuple[int, int])],
        [AggregatingStateDescriptor("v", Mean(), tuple[int, float])], "refused", {"v": "refused"}, "int and is now",
    ),
    "everything wrong at once": Case(
        [INT, TOTAL, ListStateDescriptor("list", int)], [value("v", str), MapStateDescriptor("list", str, int)],
        "refused",
        {"v": "refused", "total": "refused", "list": "refused", "key schema": "refused", "drop_states": "refused"},
        "", {"drop_states": ["x"]}, key=int,
    ),
    "the same codec, given": Case([INT], [value("v", codec_for(int))], "compatible", {"v": "compatible"}),
}  # fmt: skip
