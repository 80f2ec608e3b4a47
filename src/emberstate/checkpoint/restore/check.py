"""`check_restore`: whether files can be restored into a program. Needs no backend; every restore begins with it.

It decides for every stored state: dropped, renamed, kept, or restored into the state of its name; a state that fits
nowhere is rejected. A restore does exactly what the verdict says, so a dry run and a restore cannot disagree. The
verdict has all problems, not only the first.

Thread safety: pure.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from emberstate.checkpoint.files.bindings import StateBinding
from emberstate.checkpoint.files.field_paths import backward, has_field
from emberstate.checkpoint.files.meta import TIMERS, TIMERS_PREFIX, FileMeta, StoredState
from emberstate.checkpoint.manifest.decisions import NO_PAST_CHOICES, FileDecisions, PastChoices, is_queue
from emberstate.checkpoint.restore.choices import NO_CHOICES, CheckedChoices, RestoreChoices
from emberstate.checkpoint.restore.compare import Found, judge, merged, not_kept
from emberstate.checkpoint.restore.undeclared import timer_namespace
from emberstate.checkpoint.restore.verdict import RestoreVerdict, StateVerdict
from emberstate.keygroups import KeySchema
from emberstate.state.ttl.config import TtlClock


def check_restore(
    files: Iterable[tuple[FileMeta, FileDecisions]],
    declared: Iterable[StateBinding],
    *,
    key_schema: KeySchema,
    max_parallelism: int,
    choices: RestoreChoices = NO_CHOICES,
    past_choices: PastChoices = NO_PAST_CHOICES,
    ttl_clock: TtlClock | None = None,
) -> RestoreVerdict:
    """Return the verdict on restoring `files`, each with the earlier decisions about it, into what is `declared`.

    `declared`: `bindings_of` a backend, or `binding_of_state` and `binding_of_queue`. `past_choices`: those of the
    last start's verdict. `ttl_clock`: the stamp of values whose state has a time to live only now.

    >>> from emberstate.checkpoint.files.bindings import binding_of_state
    >>> from emberstate.keygroups import KeyGroupRange
    >>> from emberstate.state.descriptors import ValueStateDescriptor
    >>> keys, total = KeySchema.from_python(str), binding_of_state(ValueStateDescriptor("total", int))
    >>> file = FileMeta("base", keys.type_names, 128, KeyGroupRange(0, 127), (total.stored,))
    >>> now = [binding_of_state(ValueStateDescriptor("Total", int))]
    >>> print(check_restore([(file, FileDecisions())], now, key_schema=keys, max_parallelism=128))
    refused
    Total  new
    total  refused  it is stored and not declared; declared is 'Total', which differs only in case; \
if it is the same: rename_states={'total': 'Total'}; else drop_states=['total'] or keep_states=['total']
    """
    check = _Check(declared, CheckedChoices(choices, past_choices), ttl_clock)
    for meta, older in files:
        check.add_file(meta, older, key_schema, max_parallelism)
    return check.verdict()


class _Check:
    """One check: `add_file` for every file, then `verdict`."""

    def __init__(self, declared: Iterable[StateBinding], choices: CheckedChoices, ttl_clock: TtlClock | None) -> None:
        self._declared = {binding.stored.address: binding for binding in declared if not binding.is_kept}
        self._choices = choices
        self._clock = ttl_clock
        self._problems = dict.fromkeys([*choices.problems, *choices.contradictions(self._declared)])
        self._found: dict[str, list[Found]] = {}  # by declared name
        self._judged: dict[Any, Found] = {}
        self._dropped: dict[str, None] = {}
        self._kept: dict[str, list[tuple[StoredState, bool]]] = {}  # and whether a decision about it is pending
        self._undeclared: dict[str, StoredState] = {}
        self._queues: dict[str, None] = {}
        self._stored: set[str] = set()  # the present names of all states in the files
        self._dropped_before: set[str] = set()
        self._fields: dict[str, set[str]] = {}  # state → the renamed fields that were found
        self._decisions: list[FileDecisions] = []

    # -- files ----------------------------------------------------------------------------------------------

    def add_file(self, meta: FileMeta, older: FileDecisions, key_schema: KeySchema, max_parallelism: int) -> None:
        """Judge the states of one file."""
        if meta.key_schema != key_schema.type_names:
            self._problem(
                "key schema",
                f"keys were {list(meta.key_schema)} and are now {list(key_schema.type_names)}: they would be in "
                f"other groups",
                "declare the stored key, or rewrite the checkpoint offline",
            )
        if meta.max_parallelism != max_parallelism:
            self._problem(
                "max parallelism",
                f"it was {meta.max_parallelism} and is now {max_parallelism}: keys would be in other groups",
                "keep it, or rewrite the checkpoint offline",
            )
        self._dropped_before |= older.drop_states
        decisions = older.then(self._choices.decisions).restricted_to(meta.states)
        fields, stamps = dict(decisions.rename_fields), dict(decisions.stamps)
        targets: Counter[str] = Counter()
        for stored in meta.states:
            target = self._place(stored, older, decisions)
            if target is None:
                continue
            targets[target] += 1
            found = self._judge(stored, older, decisions, target)
            self._found.setdefault(target, []).append(found)
            fields[stored.address] = found.renames
            stamps.pop(stored.address, None)
            if found.stamp:
                (stamps[stored.address],) = found.stamp
        for target, count in targets.items():
            if count > 1:
                self._problem(target, f"{count} stored states would be this one", "correct rename_states")
        self._decisions.append(FileDecisions(decisions.drop_states, decisions.rename_states, fields, stamps))

    def _place(self, stored: StoredState, older: FileDecisions, decisions: FileDecisions) -> str | None:
        """Return the declared state that a stored one goes into; or None, and note what becomes of it."""
        before, now = older.name_of(stored.address), decisions.name_of(stored.address)
        if before is None or now is None:
            self._dropped[before or stored.address] = None
            self._stored |= {before} if before is not None else set()
            return None
        self._stored.add(before)
        if now in self._declared:
            return now
        name = now.removeprefix(TIMERS_PREFIX)
        if now == before and stored.kind == TIMERS and timer_namespace(stored).kind == "str":
            self._queues[name] = None
        elif now in self._choices.keep_states:
            pending = stored.address in decisions.rename_fields or stored.address in decisions.stamps
            self._kept.setdefault(now, []).append((dataclasses.replace(stored, name=name), pending))
        elif now == before:  # a rename to an undeclared state is reported as a mistake of the choice
            self._undeclared[now] = stored
        return None

    def _judge(self, stored: StoredState, older: FileDecisions, decisions: FileDecisions, target: str) -> Found:
        before = older.name_of(stored.address)
        assert before is not None
        asked = self._asked(stored, older.fields_of(stored.address), before, self._declared[target])
        renames = decisions.fields_of(stored.address)
        stamp = (older.stamps[stored.address],) if stored.address in older.stamps else ()
        # The files of a chain mostly declare the same states: judge each only once.
        case = (stored, target, frozenset(renames.items()), frozenset(asked), stamp)
        found = self._judged.get(case)
        if found is None:
            found = self._judged[case] = judge(stored, self._declared[target], renames, asked, stamp, self._clock)
            if target != stored.address:
                found.differs(f"renamed from {stored.name!r}")
        return found

    def _asked(self, stored: StoredState, before: dict[str, str], name: str, binding: StateBinding) -> set[str]:
        """Return the fields of a file, by their paths there, that the present choices rename."""
        asked = set()
        for path, new in self._choices.decisions.fields_of(name).items():
            sources = [source for source in backward(path, before) if stored.has_field(source)]
            asked.update(sources)
            if any(has_field(stored.type, source) for source in sources) and has_field(binding.stored.type, path):
                self._problem(
                    f"rename_fields of {name}",
                    f"`{path}` is renamed to `{new}`, but the type still has `{path}`: the next start would rename it "
                    f"again",
                    "give the new field another name",
                )
            parent = path.rpartition(".")[0]
            renamed = backward(f"{parent}.{new}" if parent else new, before)  # at an earlier start
            if sources or any(stored.has_field(source) for source in renamed):
                self._fields.setdefault(name, set()).add(path)
        return asked

    # -- choices --------------------------------------------------------------------------------------------

    def _check_unused(self) -> None:
        """Reject choices that name nothing, unless an earlier start has carried them out."""
        decisions, before = self._choices.decisions, self._choices.past_choices.decisions
        for option, name in self._choices.unused(self._stored, self._dropped_before):
            self._problem(option, f"{name!r} names no stored state{self._instead(name)}", "correct or remove it")
        for old, new in sorted(decisions.rename_states.items()):
            if old in self._stored and new in self._stored:
                self._problem("rename_states", f"{old!r} becomes {new!r}, but both are stored", "correct it")
        for name in sorted(decisions.rename_fields.keys() & self._stored):
            known = self._fields.get(name, set()) | before.fields_of(name).keys()
            for path in sorted(decisions.fields_of(name).keys() - known):
                self._problem(f"rename_fields of {name}", f"`{path}` names no stored field", "correct or remove it")

    def _instead(self, name: str) -> str:
        close = _closest(name, self._stored)
        return f" (did you mean {close!r}?)" if close is not None else ""

    def _problem(self, name: str, reason: str, what_to_do: str) -> None:
        self._problems[StateVerdict(name, "refused", (), reason, what_to_do)] = None

    # -- the verdict ----------------------------------------------------------------------------------------

    def verdict(self) -> RestoreVerdict:
        """Return the verdict on all files that were added."""
        self._check_unused()
        new = {name for name in self._declared if name not in self._found}
        states = [merged(name, found) for name, found in self._found.items()]
        states += [StateVerdict(name, "new") for name in new]
        states += [StateVerdict(name, "dropped", ("its rows are skipped",)) for name in self._dropped]
        states += [self._kept_verdict(name, found) for name, found in self._kept.items()]
        states += [self._not_declared(name, new) for name in self._undeclared]
        states += [
            StateVerdict(TIMERS_PREFIX + name, "compatible", ("not declared, made with namespaces of str",))
            for name in self._queues
        ]
        return RestoreVerdict(
            tuple(sorted(states, key=lambda state: (is_queue(state.name), state.name, state.kind))),
            tuple(self._problems),
            tuple(self._decisions),
            self._choices.past_choices.with_options(self._choices.decisions, self._choices.keep_states),
            tuple(found[-1][0] for found in self._kept.values()),
            tuple(self._queues),
        )

    def _kept_verdict(self, name: str, found: list[tuple[StoredState, bool]]) -> StateVerdict:
        reason = not_kept(found)
        if reason is None:
            return StateVerdict(name, "kept", ("carried along as it is stored",))
        return StateVerdict(
            name, "refused", (), f"it cannot be kept: {reason}", "declare it until a base is written, or drop_states"
        )

    def _not_declared(self, name: str, new: set[str]) -> StateVerdict:
        reason, ways = "it is stored and not declared", f"drop_states=[{name!r}] or keep_states=[{name!r}]"
        close = _closest(name, {other for other in new if is_queue(other) == is_queue(name)})
        if close is None:
            return StateVerdict(name, "refused", (), reason, f"declare it, or decide: {ways}")
        case = ", which differs only in case" if close.casefold() == name.casefold() else ""
        rename = f"if it is the same: rename_states={{{name!r}: {close!r}}}; else {ways}"
        return StateVerdict(name, "refused", (), f"{reason}; declared is {close!r}{case}", rename)


def _closest(name: str, names: set[str]) -> str | None:
    """Return the one of `names` that may be meant."""
    for other in sorted(names):
        if other.casefold() == name.casefold():
            return other
    return next(iter(difflib.get_close_matches(name, sorted(names), 1, 0.7)), None)
