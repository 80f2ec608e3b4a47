"""Deduplication: of messages that are sent again and again, only the first within an hour goes on.

One flag per message, with a time to live: what is not seen again is forgotten by itself, and the state does not grow
for ever. Run it to see duplicates being dropped, and forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import emberstate as es
from emberstate.testing import Harness

MESSAGES = "id string, body string"
REMEMBER = timedelta(hours=1)


class Deduplicate(es.KeyedProcessFunction):
    """Lets the first message of an id through."""

    seen = es.value_state(bool, ttl=REMEMBER)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> Iterator[Any]:
        if self.seen.value():
            ctx.count("duplicates")
            return
        self.seen.update(True)
        yield row


def harness(**options: Any) -> Harness:
    """The function in a harness, as a pipeline would declare it."""
    return Harness(Deduplicate(), schema=MESSAGES, key="id", output=MESSAGES, name="deduplicate", **options)


def main() -> None:
    """Send messages twice, at once and after a while, and print what goes on."""
    with harness() as once:
        once.process(("m1", "hello"), ("m1", "hello"), ("m2", "world"))
        once.advance_processing_time("59 minutes")
        once.process(("m1", "hello, again"))
        once.advance_processing_time("1 minute")
        print(f"remembered after an hour: {once.keys('seen')}")
        once.process(("m1", "hello, an hour later"))
        for message in once.output:
            print(f"{message.id}: {message.body}")
        print(f"{once.counters['duplicates']} duplicates dropped")


if __name__ == "__main__":
    main()
