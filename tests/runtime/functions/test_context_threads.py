"""A context asked from another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import emberstate as es
from emberstate.errors import LifecycleError
from emberstate.testing import Harness

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SEEN = es.ValueStateDescriptor("seen", int)
RULES = es.MapStateDescriptor("rules", str, int)

MEMBERS: dict[str, Callable[[Any], Any]] = {
    "key": lambda ctx: ctx.key,
    "timestamp": lambda ctx: ctx.timestamp,
    "timestamp_micros": lambda ctx: ctx.timestamp_micros,
    "watermark": lambda ctx: ctx.watermark,
    "watermark_micros": lambda ctx: ctx.watermark_micros,
    "processing_time": lambda ctx: ctx.processing_time,
    "processing_time_micros": lambda ctx: ctx.processing_time_micros,
    "output": lambda ctx: ctx.output("side", (1,)),
    "count": lambda ctx: ctx.count("calls"),
    "register_event_time": lambda ctx: ctx.timers.register_event_time("t", NOW),
    "delete_processing_time": lambda ctx: ctx.timers.delete_processing_time("t", NOW),
    "list_event_time": lambda ctx: ctx.timers.list_event_time(),
    "get_value_state": lambda ctx: ctx.get_value_state(SEEN),
    "get_broadcast_state": lambda ctx: ctx.get_broadcast_state(RULES),
    "apply_to_keyed_state": lambda ctx: ctx.apply_to_keyed_state(SEEN, lambda key, state: None),
}


class Asking(es.KeyedBroadcastProcessFunction):
    """Does one thing with its context on its own thread, and again on another."""

    def __init__(self, ask: Callable[[Any], Any]) -> None:
        self.ask = ask

    def open(self, ctx: Any) -> None:
        ctx.get_value_state(SEEN)
        ctx.get_broadcast_state(RULES)

    def process_element(self, row: Any, ctx: Any) -> Any:
        if self.ask is not MEMBERS["apply_to_keyed_state"]:
            self.ask(ctx)
        refused: list[LifecycleError] = []

        def use() -> None:
            try:
                self.ask(ctx)
            except LifecycleError as error:
                refused.append(error)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        yield (str(refused),)

    def process_broadcast_element(self, row: Any, ctx: Any) -> None: ...

    def on_timer(self, timer: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize("member", MEMBERS)
def test_another_thread_is_refused_whatever_it_asks(member: str) -> None:
    """Catches: a thread whose rows and counts go into whatever transaction is at hand, or that gets another key."""
    with Harness(
        Asking(MEMBERS[member]),
        schema="k string, ts timestamp",
        key="k",
        event_time="ts",
        output="refused string",
        side_outputs={"side": "n bigint"},
        broadcast="name string",
    ) as harness:
        (row,) = harness.process(("a", NOW))
        assert "used by thread" in row.refused
        assert len(harness.side_output("side")) == (member == "output")
        assert harness.counters.get("calls", 0) == (member == "count")
