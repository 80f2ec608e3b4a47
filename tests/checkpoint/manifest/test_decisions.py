"""`FileDecisions`: one after the other is the same as both at once, and it goes through JSON."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.files.meta import StoredState
from emberstate.checkpoint.manifest.decisions import NO_DECISIONS, FileDecisions
from emberstate.codec import FieldSchema, TypeSchema
from emberstate.errors import CorruptionError, StateDeclarationError
from tests.effort import examples
from tests.raising import raising

# -- the model: a file is {state: (tree of fields, stamp)} ---------------------------------------------------

Tree = dict[str, Any]


def evolved(file: dict[str, tuple[Tree, int | None]], evolution: FileDecisions) -> dict[str, tuple[Tree, int | None]]:
    """What the states of a file are after the decisions; Hypothesis is told to look elsewhere if two collide."""
    found: dict[str, tuple[Tree, int | None]] = {}
    for name, (tree, stamp) in file.items():
        if name in evolution.drop_states:
            continue
        new = evolution.rename_states.get(name, name)
        assume(new not in found)
        fields = renamed(tree, evolution.rename_fields.get(name, {}), "")
        found[new] = (fields, evolution.stamps.get(name, stamp))
    return found


def renamed(tree: Tree, renames: Any, parent: str) -> Tree:
    found: Tree = {}
    for name, below in tree.items():
        path = f"{parent}.{name}" if parent else name
        new = renames.get(path, name)
        if new:
            assume(new not in found)
            found[new] = renamed(below, renames, path)
    return found


NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
FIELDS = st.sampled_from(["p", "q", "r", "s", "t"])
PATHS = FIELDS | st.tuples(FIELDS, FIELDS).map(".".join)
TREES: st.SearchStrategy[Tree] = st.dictionaries(FIELDS, st.dictionaries(FIELDS, st.just({}), max_size=3), max_size=4)
FILES = st.dictionaries(NAMES, st.tuples(TREES, st.none() | st.integers(0, 9)), min_size=1)
EVOLUTIONS = st.builds(
    FileDecisions,
    st.frozensets(NAMES, max_size=1),
    st.dictionaries(NAMES, NAMES, max_size=2),
    st.dictionaries(NAMES, st.dictionaries(PATHS, FIELDS | st.just(""), max_size=2), max_size=2),
    st.dictionaries(NAMES, st.none() | st.integers(-9, 9), max_size=2),
)


@pytest.mark.reliability(25)
@settings(max_examples=examples(500))
@given(FILES, EVOLUTIONS, EVOLUTIONS)
def test_one_after_the_other_is_both_at_once(file: Any, older: FileDecisions, newer: FileDecisions) -> None:
    """Catches: a second restore, before a base was written, that reads a file otherwise than the first left it."""
    expected = evolved(evolved(file, older), newer)
    assert evolved(file, older.then(newer)) == expected


@given(FILES, EVOLUTIONS, EVOLUTIONS, EVOLUTIONS)
def test_three_in_a_row(file: Any, first: FileDecisions, second: FileDecisions, third: FileDecisions) -> None:
    """Catches: a composition that is right once and not when composed again."""
    expected = evolved(evolved(evolved(file, first), second), third)
    assert evolved(file, first.then(second).then(third)) == expected
    assert evolved(file, first.then(second.then(third))) == expected


@given(EVOLUTIONS)
def test_nothing_before_or_after_changes_nothing(evolution: FileDecisions) -> None:
    """Catches: a composition with no decision that is another value, so that deltas could not be merged."""
    assert evolution.then(NO_DECISIONS) == evolution == NO_DECISIONS.then(evolution)
    assert bool(evolution) == (evolution != NO_DECISIONS)


@given(EVOLUTIONS)
def test_through_json_and_pickle(evolution: FileDecisions) -> None:
    """Catches: a decision lost on its way into a manifest or to a worker."""
    copy = FileDecisions.from_dict(json.loads(json.dumps(evolution.to_dict())))
    assert copy == evolution == pickle.loads(pickle.dumps(evolution))
    assert hash(copy) == hash(evolution)


DROP_B = FileDecisions(frozenset({"b"}))


@pytest.mark.parametrize(
    ("older", "newer", "both"),
    [
        (FileDecisions(rename_states={"a": "b"}), FileDecisions(rename_states={"b": "c"}), {"a": "c"}),
        (FileDecisions(rename_states={"a": "b"}), DROP_B, {"a": None}),
        (FileDecisions(rename_states={"a": "b"}), FileDecisions(rename_states={"a": "x"}), {"a": "b"}),
        (FileDecisions(frozenset({"a"})), FileDecisions(rename_states={"a": "x"}), {"a": None}),
        (FileDecisions(rename_states={"a": "b"}), FileDecisions(rename_states={"b": "a"}), {"a": "a"}),
        (FileDecisions(rename_states={"timers/a": "timers/b"}), DROP_B, {"timers/a": "timers/b"}),
    ],
    ids=["twice renamed", "renamed and dropped", "another one of the old name", "dropped before", "back", "queues"],
)
def test_what_becomes_of_a_state(older: FileDecisions, newer: FileDecisions, both: dict[str, str | None]) -> None:
    """Catches: a decision about a later state of the same name that reaches the older one, or the reverse."""
    for name, later in both.items():
        assert older.then(newer).name_of(name) == later


def test_field_paths_follow_renamed_parents() -> None:
    """Catches: a second rename inside a renamed field that no longer finds it, or finds a newer one."""
    older = FileDecisions(rename_fields={"s": {"customer": "client", "gone": ""}})
    newer = FileDecisions(rename_fields={"s": {"client.mail": "email", "gone": "other", "customer": "buyer"}})
    assert older.then(newer).fields_of("s") == {
        "customer": "client", "gone": "", "customer.mail": "email", "client.mail": "email"
    }  # fmt: skip
    inside = FileDecisions(rename_fields={"s": {"customer.mail": "email"}})  # of another field of the old name
    assert older.then(inside).fields_of("s") == older.fields_of("s")


def test_restricted_to_what_a_file_has() -> None:
    """Catches: a reference that remembers states and fields its file never had, or forgets those it has."""
    record = TypeSchema("dataclass", fields=(FieldSchema("p", TypeSchema("int"), True),))
    states = [
        StoredState("a", "list", "msgspec", TypeSchema("list", (record,)), None, TypeSchema("str"), None),
        StoredState("b", "map", "msgspec", TypeSchema("int"), record, TypeSchema("str"), None),
    ]
    evolution = FileDecisions(
        frozenset({"x"}),
        {"a": "c", "y": "z"},
        {"a": {"p": "q", "r": "s"}, "b": {"p": ""}, "y": {"p": "q"}},
        {"a": 1, "y": 2},
    )
    expected = FileDecisions(frozenset(), {"a": "c"}, {"a": {"p": "q"}, "b": {"p": ""}}, {"a": 1})
    assert evolution.restricted_to(states) == expected


def test_what_does_nothing_is_not_there() -> None:
    """Catches: two values for one decision."""
    idle = FileDecisions(frozenset({"d"}), {"a": "a", "d": "e"}, {"a": {"p.q": "q"}, "d": {"p": "q"}}, {"d": 1})
    assert idle == FileDecisions(frozenset({"d"}))
    assert idle.to_dict() == {"drop_states": ["d"]}
    assert NO_DECISIONS.to_dict() == {}


@pytest.mark.parametrize("name", ["", "a/b", "timers/", "timers/a/b", " a", "\0", "a\\b"])
def test_names_that_no_state_has(name: str) -> None:
    """Catches: a path or nothing taken for the name of a state."""
    with pytest.raises(StateDeclarationError):
        FileDecisions(frozenset({name}))


def test_a_queue_cannot_become_a_state() -> None:
    """Catches: timers loaded as a map."""
    with raising(StateDeclarationError, state="timers/a"):
        FileDecisions(rename_states={"timers/a": "a"})


@pytest.mark.reliability(27)
@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        {"later": 1},
        {"drop_states": "abc"},
        {"drop_states": [1]},
        {"drop_states": ["../x"]},
        {"rename_states": [["a", "b"]]},
        {"rename_states": {"a": None}},
        {"rename_states": {"a": "timers/a"}},
        {"rename_fields": {"a": "b"}},
        {"rename_fields": {"a": {"b": 1}}},
        {"stamps": {"a": 1.5}},
        {"stamps": {"a": 2**63}},
        {"stamps": {"a": True}},
    ],
)
def test_nonsense_in_a_manifest(plain: Any) -> None:
    """Catches: nonsense believed, or another exception than ours."""
    with pytest.raises(CorruptionError):
        FileDecisions.from_dict(plain)
