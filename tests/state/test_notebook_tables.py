"""What notebooks show of states, verdicts, batches and pipelines."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import emberstate as es
from emberstate.checkpoint import CheckpointReader, RestoreVerdict
from emberstate.checkpoint.restore.verdict import StateVerdict
from emberstate.codec import codec_for
from emberstate.state import ImmutableListState, ImmutableMapState, ImmutableValueState
from emberstate.testing import Harness

HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "&lt;b&gt;", "a\0b\x1b[2J", "</td></table>x"]


class Tags(HTMLParser):
    """The tags of a text, with their attributes, and what stands between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def check(shown: Any, *texts: str) -> None:
    """Nothing but a table, and the texts in it."""
    found = Tags(shown._repr_html_())
    assert found.tags <= {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert found.attributes <= {"colspan"}
    assert all(char.isprintable() or char == "\n" for char in found.text)
    for text in texts:
        assert text in found.text


@pytest.mark.parametrize("value", HOSTILE)
def test_hostile_values_are_text(value: str, tmp_path: Path) -> None:
    """Catches: a stored value, a name or a message that a notebook runs, or that breaks out of the table."""
    printable = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)
    texts = codec_for(str)
    check(ImmutableValueState(value, texts))
    check(ImmutableListState([value], texts))
    check(ImmutableMapState({value: value}, texts))
    check(RestoreVerdict((StateVerdict(value, "refused", (value,), value, value),)), printable, "Restore: refused")
    check(es.Pipeline(value, es.FsStateBackend(tmp_path)), printable)
    progress = es.Progress(
        pipeline=value, batch=1, checkpoint=2, redelivered=False, rows_in=3, rows_out={value: 3}, late_rows=0,
        late_rows_dropped=0, null_keys=0, timers_fired=0, slots={value: 1}, state_entries=1, state_bytes=2048,
        delta_bytes=0, watermark=None, watermark_held_by=None, counters={value: 1}, seconds={"total": 1.0},
    )  # fmt: skip
    check(progress, printable, "stored 2.0 KiB")


def test_large_states_are_cut() -> None:
    """Catches: a notebook that a large state fills; a cut that is not told."""
    state = ImmutableMapState({f"key-{number}": number for number in range(1000)}, codec_for(int))
    check(state, "key-0", "20 of 1000")
    assert len(state._repr_html_()) < 4000 and "995 more" in repr(state)
    check(ImmutableValueState("x" * 1_000_000, codec_for(str)), "characters)")
    assert len(ImmutableValueState("x" * 1_000_000, codec_for(str))._repr_html_()) < 1000
    assert repr(ImmutableListState([1, 2], codec_for(int))) == "<ImmutableListState of value: [1, 2]>"
    assert "<td>" not in ImmutableValueState(None, codec_for(int))._repr_html_()


class Seen(es.KeyedProcessFunction):
    """Counts."""

    seen = es.value_state(int, default=0)

    def process_element(self, row: Any, ctx: es.FunctionContext) -> None:
        self.seen.update(self.seen.value() + 1)


def test_a_reader_shows_its_states(tmp_path: Path) -> None:
    """Catches: a reader that shows another checkpoint's states, or fails to show itself once it is closed."""
    with Harness(Seen(), schema="card string", key="card", state_backend=es.FsStateBackend(tmp_path)) as harness:
        harness.process({"card": "ann"})
    with CheckpointReader.open(tmp_path) as reader:
        check(reader, "seen", "value", "int")
    check(reader, "closed")
