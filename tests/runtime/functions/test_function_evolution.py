"""State follows declared names: classes can be renamed, moved and rewritten around it."""

from __future__ import annotations

import dataclasses
from typing import Any

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter
from emberstate.checkpoint.restore.load import restore
from emberstate.errors import RestoreRefusedError
from emberstate.runtime.functions.declared_states import map_state, value_state
from emberstate.runtime.functions.function import KeyedProcessFunction
from emberstate.runtime.operator.operator import KeyedOperator
from tests.raising import raising
from tests.runtime.support import SECOND, at, opened, transaction


@dataclasses.dataclass
class Profile:
    """As it was."""

    visits: int
    last: str


def as_it_was() -> KeyedProcessFunction:
    class Visits(KeyedProcessFunction):
        profile = value_state(Profile)
        seen = map_state(str, int)

        def process_element(self, row: Any, ctx: Any) -> Any:
            old = self.profile.value()
            self.profile.update(Profile((old.visits if old else 0) + 1, row))
            self.seen[row] = self.seen.get(row, 0) + 1
            ctx.timers.register_event_time("quiet", at(9))

        def on_timer(self, timer: Any, ctx: Any) -> Any: ...

    return Visits()


def checkpoint() -> bytes:
    operator = opened(as_it_was())
    transaction(operator, [("k", "x"), ("k", "y"), ("l", "x")])
    with operator.backend.snapshot() as snapshot:
        return b"".join(BaseWriter(operator.backend, snapshot))


def restored(function: KeyedProcessFunction) -> KeyedOperator:
    operator = opened(function)
    restore([StateFileReader.of_bytes(checkpoint())], operator.backend)
    return operator


def renamed_profile() -> Any:
    @dataclasses.dataclass
    class CustomerProfile:
        visits: int
        last: str
        country: str = "?"

    return CustomerProfile


def test_renamed_class_moved_module_other_attributes() -> None:
    """Catches: state that is found by a class or module name, and lost when the code is tidied up."""
    profile_type = renamed_profile()

    class Customers(KeyedProcessFunction):
        __module__ = "somewhere.else"

        shops = map_state(str, int, name="seen")  # another attribute, the same name
        profile = value_state(profile_type)

        def process_element(self, row: Any, ctx: Any) -> Any:
            profile = self.profile.value()
            assert profile is not None
            yield ctx.key, profile.visits, profile.last, profile.country, dict(self.shops)

        def on_timer(self, timer: Any, ctx: Any) -> Any:
            yield timer.name, ctx.key, timer.time

    operator = restored(Customers())

    assert transaction(operator, [("k", None), ("l", None)]).main == [
        ("k", 2, "y", "?", {"x": 1, "y": 1}),
        ("l", 1, "x", "?", {"x": 1}),
    ]
    assert transaction(operator, watermark=9 * SECOND).main == [("quiet", "k", at(9)), ("quiet", "l", at(9))]


def test_timers_fire_once_after_a_restore() -> None:
    """Catches: restored timers that fire twice, or were due at once and never fire."""
    operator = restored(as_it_was())

    assert transaction(operator, watermark=100 * SECOND).timers_fired == 2
    assert transaction(operator, watermark=200 * SECOND).timers_fired == 0
    operator.check_invariants()


def test_a_renamed_attribute_is_another_state() -> None:
    """Catches: state taken for that of another name because it is in the same place of the class."""

    class Renamed(KeyedProcessFunction):
        customer = value_state(Profile)
        seen = map_state(str, int)

        def process_element(self, row: Any, ctx: Any) -> Any: ...

    with raising(RestoreRefusedError, state="profile"):
        restored(Renamed())


def test_a_changed_field_type_is_refused() -> None:
    """Catches: ints read as text."""

    @dataclasses.dataclass
    class Changed:
        visits: str
        last: str

    class Retyped(KeyedProcessFunction):
        profile = value_state(Changed)
        seen = map_state(str, int)

        def process_element(self, row: Any, ctx: Any) -> Any: ...

    with raising(RestoreRefusedError, "visits", state="profile"):
        restored(Retyped())
