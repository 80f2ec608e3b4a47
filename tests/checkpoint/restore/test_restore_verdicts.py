"""What a restore does with a program that has changed: the table of verdicts, each asked for and carried out."""

from __future__ import annotations

import json
import logging
import re
from typing import Any

import pytest

from emberstate.checkpoint.files.bindings import StateBinding, binding_of_queue, binding_of_state
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.manifest.decisions import NO_DECISIONS, NO_PAST_CHOICES, FileDecisions, PastChoices
from emberstate.checkpoint.restore.check import check_restore
from emberstate.checkpoint.restore.choices import RestoreChoices
from emberstate.checkpoint.restore.file_slice import FileSlice
from emberstate.checkpoint.restore.load import restore
from emberstate.checkpoint.restore.verdict import RestoreVerdict
from emberstate.errors import CorruptionError, RestoreRefusedError, StateDeclarationError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import StateDescriptor, ValueStateDescriptor
from emberstate.state.ttl.config import TtlClock, TtlConfig
from tests.checkpoint.restore.verdict_cases import CASES, HOUR, Case, Declaration, Order, Place
from tests.raising import raising

NOW = 1_000_000


def parts_of(declaration: Declaration) -> tuple[Any, Any]:
    return declaration if isinstance(declaration, tuple) else (declaration, str)


def make(declarations: list[Declaration], key: Any = str, groups: int = 4) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(KeySchema.from_python(key), max_parallelism=groups)
    backend.ttl_clock.processing_time = NOW
    for what, namespace_type in map(parts_of, declarations):
        if isinstance(what, StateDescriptor):
            backend.get_partitioned_state(what, namespace_type(), namespace_type=namespace_type)
        else:
            backend.get_timer_queue(what, namespace_type=namespace_type)
    return backend


def fill(backend: HeapKeyedStateBackend, declarations: list[Declaration], key: Any) -> None:
    backend.set_current_key(key)
    for what, namespace_type in map(parts_of, declarations):
        if not isinstance(what, StateDescriptor):
            queue = backend.get_timer_queue(what, namespace_type=namespace_type)
            queue.register(5, "t", "" if namespace_type is str else (0, 9))
            continue
        state = backend.get_partitioned_state(what, namespace_type(), namespace_type=namespace_type)
        if what.kind == "map":
            state.put(Place(1, 2) if "Place" in repr(what.key_codec) else "u", 7)  # type: ignore[attr-defined]
        elif what.kind in ("list", "reducing", "aggregating"):
            state.add(7)
        else:
            state.update({int: 7, str: "7", Order: Order(7, 2.5)}[what.codec.type])


def base_of(backend: HeapKeyedStateBackend) -> bytes:
    with backend.snapshot() as snapshot:
        return b"".join(BaseWriter(backend, snapshot))


def opened(data: bytes) -> StateFileReader:
    return StateFileReader.of_bytes(data)


def files_before(case: Case) -> list[StateFileReader]:
    """A base with key "k", and a delta with key "l"."""
    backend = make(case.before)
    fill(backend, case.before, "k")
    base = base_of(backend)
    with backend.snapshot() as snapshot:
        fill(backend, case.before, "l")
        return [opened(base), opened(write_delta(backend, snapshot).data)]


def asked(case: Case, files: list[StateFileReader], evolutions: Any = None, **options: Any) -> RestoreVerdict:
    """A dry run, without a backend."""
    declared: list[StateBinding] = []
    for what, namespace_type in map(parts_of, case.after):
        make_binding: Any = binding_of_state if isinstance(what, StateDescriptor) else binding_of_queue
        declared.append(make_binding(what, namespace_type))
    clock = TtlClock()
    clock.processing_time = NOW
    return check_restore(
        [(file.meta, evolution) for file, evolution in zip(files, evolutions or [NO_DECISIONS] * 2, strict=True)],
        declared,
        key_schema=KeySchema.from_python(case.key),
        max_parallelism=case.groups,
        choices=RestoreChoices(**case.options),
        ttl_clock=clock,
        **options,
    )


def content_of(backend: HeapKeyedStateBackend) -> dict[Any, Any]:
    tables = {name: state.table for name, state in backend.registered_states.items()}
    tables |= {f"timers/{name}": queue.table for name, queue in backend.timer_queues.items()}
    return {(name, key, namespace): content for name, table in tables.items() for key, namespace, content in table}


@pytest.mark.reliability(25)
@pytest.mark.parametrize("name", CASES)
def test_the_verdict_and_the_restore(name: str) -> None:
    """Catches: a verdict that is wrong, or that a real restore does not keep: refused after all, accepted after
    all, or something else done; and a refusal that has changed the backend."""
    case = CASES[name]
    files = files_before(case)
    dry = asked(case, files)
    assert dry.kind == case.kind, str(dry)
    verdicts = [(state.name, state.kind) for state in (*dry.problems, *dry.states)]
    assert set(case.states.items()) <= set(verdicts)
    assert re.search(case.says, str(dry), re.DOTALL)
    assert json.loads(json.dumps(dry.to_dict()))["kind"] == case.kind
    backend = make(case.after, case.key, case.groups)
    names = [*backend.registered_states, *backend.timer_queues]
    if case.kind == "refused":
        with pytest.raises(RestoreRefusedError) as by_dry_run:
            dry.refuse()
        with pytest.raises(RestoreRefusedError) as by_restore:
            restore(files, backend, RestoreChoices(**case.options))
        assert str(by_restore.value) == str(by_dry_run.value)
        for state in (*dry.problems, *dry.states):
            if state.kind == "refused":
                assert state.reason and state.what_to_do and state.reason in str(by_restore.value)
        assert [*backend.registered_states, *backend.timer_queues] == names
        assert not content_of(backend)
        return
    counts = restore(files, backend, RestoreChoices(**case.options))
    assert counts.verdict == dry
    backend.check_invariants()
    if case.content is not None:
        content = content_of(backend)["v", "k", ""]
        assert case.content(getattr(content, "value", content))


@pytest.mark.reliability(25)
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.kind != "refused"])
def test_the_same_program_starts_again_and_again(name: str) -> None:
    """Catches: options that were right at the first start and are refused, or do something else, at the second,
    when what they name has been dealt with; decisions that are forgotten."""
    case = CASES[name]
    files = files_before(case)
    first = make(case.after)
    verdict = restore(files, first, RestoreChoices(**case.options)).verdict
    with first.snapshot() as snapshot:
        first.set_current_key("new")
        delta = opened(write_delta(first, snapshot).data)
    evolutions = [*verdict.decisions, NO_DECISIONS]
    parts = [FileSlice.whole(file, evolution) for file, evolution in zip([*files, delta], evolutions, strict=True)]
    second = make(case.after)
    second.ttl_clock.processing_time = NOW + 12345  # later: stamps must be those of the first start
    again = restore(parts, second, RestoreChoices(**case.options)).verdict
    assert content_of(second) == content_of(first)
    assert again.decisions == tuple(evolutions)
    # A slot that is restored in the same run knows the decisions and not the options, but for what is kept.
    keep = case.options.get("keep_states", ())
    third = make(case.after)
    restore(parts, third, RestoreChoices(keep_states=keep))
    assert content_of(third) == content_of(first)
    # A base takes the place of all files.
    base = opened(base_of(first))
    last = make(case.after)
    restore([base], last, RestoreChoices(**case.options), past_choices=again.past_choices)
    assert content_of(last) == content_of(first)


@pytest.mark.reliability(25)
def test_dropped_and_kept_states_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Catches: state that goes without a word; a dry run that says it was done."""
    case = CASES["state dropped"]
    files = files_before(case)
    with caplog.at_level(logging.INFO, "emberstate.checkpoint"):
        asked(case, files)
        assert not caplog.records
        restore(files, make(case.after), RestoreChoices(drop_states=["total"]))
        assert [record.getMessage() for record in caplog.records] == [
            "restore: stored state 'total' is dropped (drop_states)"
        ]
        caplog.clear()
        restore(files, make(case.after), RestoreChoices(keep_states=["total"]))
        assert ["kept as bytes" in record.getMessage() for record in caplog.records] == [True]


def test_many_files_of_one_chain_are_judged_once_each_kind() -> None:
    """Catches: the same difference said once per file."""
    case = CASES["field added"]
    files = files_before(case) * 50
    verdict = asked(case, files, [NO_DECISIONS] * len(files))
    (state,) = verdict.states
    assert len(state.fields) == 1 and len(verdict.decisions) == len(files)


def test_all_that_is_wrong_is_said_at_once() -> None:
    """Catches: a refusal that names one thing after the other, a start apart."""
    verdict = asked(CASES["everything wrong at once"], files_before(CASES["everything wrong at once"]))
    with pytest.raises(RestoreRefusedError) as caught:
        verdict.refuse()
    for part in ("key schema: keys were", "drop_states: 'x'", "- list: it was", "- total: it is stored", "- v: the"):
        assert part in str(caught.value)


def test_a_bare_name_is_not_a_list_of_letters() -> None:
    """Catches: drop_states="ab", which would drop the states "a" and "b"."""
    for option in ("drop_states", "keep_states"):
        with raising(StateDeclarationError, option=option, found="ab"):
            RestoreChoices(**{option: "ab"})  # type: ignore[arg-type]


def test_a_thousand_undeclared_states_make_a_short_message() -> None:
    """Catches: an error as long as a hostile file wants it."""
    backend = make([ValueStateDescriptor(f"s{i}", int) for i in range(1000)])
    with raising(RestoreRefusedError, "950 more") as caught:
        restore([opened(base_of(backend))], make([]))
    assert len(str(caught.value)) < 20_000


def test_time_to_live_switched_on_needs_the_time() -> None:
    """Catches: stamps of the year 1970, at which everything has expired."""
    case = CASES["time to live on"]
    backend = make(case.after)
    backend.ttl_clock.processing_time = None
    with raising(RestoreRefusedError, "stamps", state="v"):
        restore(files_before(case), backend)


def test_time_to_live_off_and_on_again() -> None:
    """Catches: a remembered stamp that outlives the time to live it was for."""
    case = CASES["time to live on"]
    files = files_before(case)
    stamped = asked(case, files).decisions
    assert [evolution.stamps for evolution in stamped] == [{"v": NOW}, {"v": NOW}]
    off = asked(CASES["the same codec, given"], files, stamped)
    assert off.decisions == (NO_DECISIONS, NO_DECISIONS)


def test_a_file_that_two_states_of_one_name_would_come_from() -> None:
    """Catches: decisions beside a file that make two of its states one."""
    case = CASES["state added"]
    backend = make(case.after)
    fill(backend, case.after, "k")
    part = FileSlice.whole(opened(base_of(backend)), FileDecisions(rename_states={"v": "total"}))
    with raising(RestoreRefusedError, "rename_states", state="total"):
        restore([part], make(case.after))


def test_a_dropped_state_can_be_declared_again_later() -> None:
    """Catches: rows of a state dropped once that come back when its name is used again; or its new rows lost."""
    case = CASES["state dropped"]
    files = files_before(case)
    verdict = restore(files, make(case.after), RestoreChoices(drop_states=["total"])).verdict
    parts = [FileSlice.whole(file, evolution) for file, evolution in zip(files, verdict.decisions, strict=True)]
    total = ValueStateDescriptor("total", str, ttl=TtlConfig(HOUR))
    third = make([*case.after, total])
    found = restore(parts, third).verdict
    assert {(state.name, state.kind) for state in found.states} >= {("total", "new"), ("total", "dropped")}
    assert not [entry for entry in content_of(third) if entry[0] == "total"]
    with third.snapshot() as snapshot:
        third.set_current_key("k")
        third.get_partitioned_state(total).update("new")
        delta = opened(write_delta(third, snapshot).data)
    parts = [FileSlice.whole(file, evolution) for file, evolution in zip(files, found.decisions, strict=True)]
    fourth = make([*case.after, total])
    restore([*parts, delta], fourth)
    assert content_of(fourth) == content_of(third)


@pytest.mark.parametrize("name", ["state kept", "state dropped", "state renamed", "field renamed"])
def test_a_slot_that_has_none_of_the_files(name: str) -> None:
    """Catches: an option that is right for the pipeline and refused in a slot, whose files do not have what it
    names."""
    case = CASES[name]
    verdict = asked(case, files_before(case))
    for options in (case.options, {"keep_states": case.options.get("keep_states", ())}):
        assert restore([], make(case.after), RestoreChoices(**options), past_choices=verdict.past_choices).rows == 0
    with raising(RestoreRefusedError, "no stored state"):
        restore([], make(case.after), RestoreChoices(**case.options))


def test_what_was_settled_goes_through_json() -> None:
    """Catches: what a manifest forgets between two starts."""
    options = FileDecisions(frozenset({"d"}), {"a": "b"}, {"a": {"p": "q"}, "c": {"r": "s"}})
    first = NO_PAST_CHOICES.with_options(options, frozenset({"k"}))
    both = first.with_options(FileDecisions(rename_fields={"a": {"t": "u"}}), frozenset({"l"}))
    assert PastChoices.from_dict(json.loads(json.dumps(both.to_dict()))) == both
    assert both.keep_states == {"k", "l"} and both.decisions.fields_of("a") == {"p": "q", "t": "u"}
    nonsense: Any
    for nonsense in (None, [], {}, {"keep_states": "k"}, {"keep_states": [1]}, {"keep_states": [], "decisions": [1]}):
        with pytest.raises(CorruptionError):
            PastChoices.from_dict(nonsense)
