"""The rule that governs everything: what is decoded is what was encoded, with the same classes throughout."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.codec import TypeSchema, codec_for, compare, decoder_for, key_codec_for
from emberstate.codec.checker import CheckerBuilder
from emberstate.codec.explain import explain
from emberstate.codec.generator import Generator
from emberstate.errors import EmberstateError, StateTypeError
from tests.codec.typed_values import canon, cases
from tests.effort import examples


@settings(max_examples=examples(300), deadline=None)
@given(data=st.data())
def test_every_value_of_every_type_comes_back(data: st.DataObject) -> None:
    """Would catch any type for which encode or decode loses, converts or reorders something."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    value = data.draw(case.values)
    encoded = codec.encode(value)
    codec.check(value)
    codec.check_deep(value)
    restored = codec.decode(encoded)
    assert canon(restored) == canon(value)
    assert codec.encode(restored) == encoded, "a restored value must not look changed"
    assert codec.same(value, restored)


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_wrong_values_are_refused_or_exact(data: st.DataObject) -> None:
    """A value of one type given to the codec of another: StateTypeError, or it comes back exactly."""
    codec = codec_for(data.draw(cases).type)
    value = data.draw(data.draw(cases).values)
    try:
        encoded = codec.encode(value)
    except StateTypeError as error:
        assert str(error.field).startswith("$")
        return
    assert canon(codec.decode(encoded)) == canon(value)


@settings(max_examples=examples(120), deadline=None)
@given(data=st.data())
def test_test_and_explanation_agree(data: st.DataObject) -> None:
    """Would catch a compiled test that says no where the explanation finds nothing, or the reverse."""
    node = codec_for(data.draw(cases).type).node
    assert node is not None
    value = data.draw(data.draw(cases).values)
    try:
        passed = CheckerBuilder(Generator("test"), deep=True, key=False).build(node)(value)
    except Exception:
        passed = False
    assert passed == (explain(node, value) is None)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_stored_schema_reads_its_own_bytes(data: st.DataObject) -> None:
    """Would catch a schema that loses what is needed to decode: JSON and back, then a decode through it."""
    case = data.draw(cases)
    codec = codec_for(case.type)
    value = data.draw(case.values)
    schema = TypeSchema.from_json(codec.schema.to_json())
    assert schema == codec.schema
    assert schema.to_json() == codec.schema.to_json()
    verdict = compare(schema, codec)
    assert verdict.kind == "compatible" and not verdict.fields, verdict
    assert canon(decoder_for(schema, codec)(codec.encode(value))) == canon(value)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data())
def test_keys_are_equal_exactly_if_their_bytes_are(data: st.DataObject) -> None:
    """Would catch a key type for which a heap backend and a file disagree about which keys are the same."""
    case = data.draw(cases.filter(lambda case: case.hashable))
    try:
        codec = key_codec_for(case.type)
    except EmberstateError:
        return
    one, other = data.draw(case.values), data.draw(case.values)
    assert (one == other) == (codec.encode(one) == codec.encode(other))
    assert codec.immutable and codec.copy(one) is one
    assert hash(codec.decode(codec.encode(one))) == hash(one)


def test_two_threads_share_a_codec() -> None:
    """A snapshot writer encodes while the owner encodes: shared state in a codec would mix their bytes."""
    codec = codec_for(dict[int, set[tuple[str, ...]]])
    values = [{i: {(str(i), "x" * i)}, -i: set()} for i in range(1, 20)]
    expected = [codec.encode(value) for value in values]
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(300):
            for value, data in zip(values, expected, strict=True):
                if codec.encode(value) != data or codec.decode(data) != value:
                    wrong.append(value)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("type_", [int, list[int], "key"])
def test_codec_travels(type_: Any) -> None:
    """Descriptors go to other processes with their codecs: an unpicklable codec would stop a job."""
    import pickle

    codec = key_codec_for(int) if type_ == "key" else codec_for(type_)
    again = pickle.loads(pickle.dumps(codec))
    assert again.schema == codec.schema and again.is_key == codec.is_key
