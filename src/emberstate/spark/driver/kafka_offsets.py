"""Where a new query begins in Kafka, compared with the position that a savepoint was taken at.

A new query has no log that would tell where it resumes, and Kafka's own default is the end of the topic: who forgets
`startingOffsets` loses the rows between. But the plan of the first batch has its first offsets. Those of Kafka are
known by their shape, a number per partition per topic.

Thread safety: any thread of the driver.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from emberstate.spark.driver.source_position import SourcePosition, items

Offsets = dict[str, dict[str, int]]

#: The node of a plan that reads from a source between two offsets.
_READ: Final = "org.apache.spark.sql.execution.datasources.v2.StreamingDataSourceV2ScanRelation"


def kafka_offsets(text: str | None) -> Offsets | None:
    """Offsets of Kafka; None for those of another source."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    if not isinstance(found, dict) or not found:
        return None
    partitions = [one for one in found.values() if isinstance(one, dict) and one]
    return found if len(partitions) == len(found) and all(map(_are_offsets, partitions)) else None


def begins_elsewhere(position: SourcePosition, stored: str) -> tuple[Offsets, Offsets] | None:
    """Where the query's present batch begins in Kafka, and where it should; None if that is the same or not known.

    `stored` is the position of a savepoint. A partition that it does not have was added since: it begins at 0.
    """
    try:
        texts = json.loads(stored)
    except ValueError:
        return None  # of a batch of no query
    expected: Offsets = {}
    for text in texts if isinstance(texts, list) else []:
        expected.update(kafka_offsets(text) or {})
    found: Offsets = {}
    for text in _starts(position):
        found.update(kafka_offsets(text) or {})
    if not expected or not found:
        return None
    wanted = {
        topic: {number: expected.get(topic, {}).get(number, 0) for number in partitions}
        for topic, partitions in found.items()
    }
    missing = any(expected[topic].keys() - found.get(topic, {}).keys() for topic in expected)
    return (found, expected) if missing or found != wanted else None


def _are_offsets(partitions: dict[str, Any]) -> bool:
    return all(number.isdigit() and isinstance(offset, int) for number, offset in partitions.items())


def _starts(position: SourcePosition) -> Iterator[str]:
    """The first offsets of the query's present batch, of every source whose plan tells them."""
    if position.execution is None:
        return
    for leaf in items(position.execution.lastExecution().logical().collectLeaves()):
        if leaf.getClass().getName() == _READ and leaf.startOffset().isDefined():
            yield str(leaf.startOffset().get().json())
