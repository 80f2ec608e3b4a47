"""Other parallelism, other places: what a job's state may move to, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

import emberstate as es
from emberstate.errors import LifecycleError, RestoreRefusedError, StateDeclarationError
from tests.raising import raising
from tests.spark.pipeline_functions import BURSTS, TOTALS, Bursts, Totals, bursts, events, totals
from tests.spark.streams import Kept, Stream, query_failing

pytestmark = pytest.mark.spark


def add_up(pipeline: es.Pipeline, sink: Any, *keys: str) -> es.Pipeline:
    """Totals by key, in order of time."""
    return pipeline.key_by(*(keys or ["key"])).event_time("ts").process("totals", Totals(), TOTALS).sink(sink)


@pytest.mark.reliability(21)
def test_parallelism_changes_with_a_restart(stream: Stream) -> None:
    """Catches: keys or timers lost, doubled or left with the wrong slot when the number of slots changes."""
    given = events(240)
    kept = Kept()
    for number, (parallelism, kind) in enumerate([(2, "fs"), (3, "rocksdb"), (1, "fs"), (2, "fs")]):
        part = given[number * 60 : (number + 1) * 60]
        stream.add(part[:30], part[30:])
        if number == 3:
            stream.add([("end", part[-1][1].replace(year=2030), 0)], [])
        stage = stream.pipeline(kind, parallelism=parallelism).key_by("key").event_time("ts")
        stream.drain(stage.process("bursts", Bursts(), BURSTS).sink(kept))
    assert sorted(kept.rows) == bursts(given)


@pytest.mark.reliability(25)
def test_what_must_not_change_is_refused(stream: Stream) -> None:
    """Catches: state that is read with another key or another number of key groups than it was written with."""
    given = events(40)
    kept = Kept()
    stream.add(given[:20])
    stream.drain(add_up(stream.pipeline(), kept))
    stream.add(given[20:])
    expected = (("string",), 128)
    fewer_groups = add_up(stream.pipeline(max_parallelism=64), kept)
    with query_failing(fewer_groups, RestoreRefusedError, expected=expected, found=(("string",), 64)):
        stream.drain(fewer_groups)
    another_key = add_up(stream.pipeline(), kept, "key", "value")
    with query_failing(another_key, RestoreRefusedError, expected=expected, found=(("string", "bigint"), 128)):
        stream.drain(another_key)
    other = Stream(stream.spark, stream.root)
    other.checkpoint_name = "another query"
    of_another_query = add_up(stream.pipeline(), kept)
    with query_failing(of_another_query, RestoreRefusedError, option="query", batch=0):
        other.drain(of_another_query)
    stream.drain(add_up(stream.pipeline(), kept))
    assert sorted(kept.rows) == sorted(totals(given))


@pytest.mark.long
def test_a_savepoint_of_a_running_stream_starts_another(stream: Stream, tmp_path: Path) -> None:
    """Catches: a savepoint that is not one moment's state; a new query that silently starts anywhere."""
    given = events(60)
    kept = Kept()
    stream.add(given[:20], given[20:40])
    pipeline = add_up(stream.pipeline(), kept)
    with pytest.raises(LifecycleError):
        pipeline.savepoint("one")
    query = stream.start(pipeline)
    query.processAllAvailable()
    pipeline.savepoint("one")
    stream.add([(key, ts, 4) for key, ts, _ in given[40:]])  # another future, which is not in the savepoint
    query.processAllAvailable()
    query.stop()
    (tmp_path / "new").mkdir()
    new = Stream(stream.spark, tmp_path / "new")
    new.add(given[40:])
    second = Kept()

    def started(**options: Any) -> None:
        other = add_up(new.pipeline(parallelism=3), second)
        new.drain(other.from_savepoint("one", location=stream.backend(), **options))

    with pytest.raises(StreamingQueryException, match="logOffset") as caught:
        started()
    with pytest.raises(StreamingQueryException, match="logOffset"):
        started(source_position="somewhere")
    text = str(caught.value)
    assert "source_position" in text and "elsewhere" in text
    started(source_position='["{\\"logOffset\\":1}"]')
    expected = sorted(totals(given)[40:])
    assert sorted(second.rows) == expected
    new.add([])
    started()  # it has checkpoints of its own by now
    assert sorted(second.rows) == expected


@pytest.mark.long
def test_a_run_saves_its_state_for_a_stream_and_another_run(stream: Stream) -> None:
    """Catches: history that does not reach the stream; a run that goes on where it must start empty."""
    given = events(90)
    kept = Kept()
    pipeline = add_up(stream.pipeline(), kept)
    stream.add(given[:30])
    history = stream.static()
    pipeline.run(history, save_as="history", batches=2)
    assert sorted(kept.rows) == sorted(totals(given[:30]))
    again = Kept()
    add_up(stream.pipeline(), again).run(history)
    assert sorted(again.rows) == sorted(totals(given[:30]))
    rest = stream.spark.createDataFrame(given[30:60], history.schema)
    more = Kept()
    add_up(stream.pipeline(), more).run(rest, savepoint="history", save_as="more")
    assert sorted(more.rows) == sorted(totals(given[:60])[30:])
    with pytest.raises(RestoreRefusedError, match="elsewhere"):
        add_up(stream.pipeline(), more).from_savepoint("more")(rest, 0)
    last = Kept()
    final = stream.spark.createDataFrame(given[60:], history.schema)
    add_up(stream.pipeline(), last).from_savepoint("more", source_position="elsewhere")(final, 7)
    assert sorted(last.rows) == sorted(totals(given)[60:])
    assert last.batches == [7]
    with raising(StateDeclarationError, option="batches"):
        pipeline.run(history, batches=0)
