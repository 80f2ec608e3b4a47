"""`RestoreChoices`: what becomes of stored states that the program no longer declares, or declares differently.

Choices name states and fields as the checkpoint has them now. They may stay in a program that is started again and
again, so they must mean the same at the second start: a state that is dropped, kept or renamed cannot be declared as
well, and a renamed field cannot still exist. Otherwise the second start would drop or rename what was written since
the first. `CheckedChoices` finds such mistakes.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from emberstate.checkpoint.manifest.decisions import NO_DECISIONS, FileDecisions, PastChoices
from emberstate.checkpoint.restore.verdict import StateVerdict
from emberstate.errors import StateDeclarationError


def names_in(names: Sequence[str], option: str) -> tuple[str, ...]:
    """Return the names that an option lists; reject a text, which would count as a list of letters."""
    if isinstance(names, str):
        what = f"restore(…): {option} expects a list of names. Write {option}=[{names!r}]."
        raise StateDeclarationError(what, option=option, found=names)
    return tuple(names)


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreChoices:
    """The choices for the states of one operator. A timer queue is named `timers/` and its name.

    >>> RestoreChoices(drop_states=["old"]).plus(RestoreChoices(rename_states={"total": "sum"}))
    RestoreChoices(drop_states=('old',), keep_states=(), rename_states={'total': 'sum'}, rename_fields={})
    """

    drop_states: Sequence[str] = ()
    """Stored states whose rows are skipped."""
    keep_states: Sequence[str] = ()
    """Stored states that are carried along as bytes."""
    rename_states: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """{stored name: declared name}"""
    rename_fields: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """{stored name: {path of a field: its name now}}"""

    def __post_init__(self) -> None:
        for option in ("drop_states", "keep_states"):
            object.__setattr__(self, option, names_in(getattr(self, option), option))  # the class is frozen

    def plus(self, more: RestoreChoices) -> RestoreChoices:
        """Return both together.

        Raises:
            StateDeclarationError: they contradict each other.
        """
        drop = tuple(dict.fromkeys([*self.drop_states, *more.drop_states]))
        keep = tuple(dict.fromkeys([*self.keep_states, *more.keep_states]))
        renames = _both(self.rename_states, more.rename_states)
        fields = {
            state: _both(self.rename_fields.get(state, {}), more.rename_fields.get(state, {}), state)
            for state in [*self.rename_fields, *more.rename_fields]
        }
        chosen = {"drop_states": drop, "keep_states": keep, "rename_states": renames}
        for (one, names), (other, others) in itertools.combinations(chosen.items(), 2):
            for name in set(names) & set(others):
                raise StateDeclarationError(
                    f"restore(…): state {name!r} is in {one} and in {other}. Choose one of them.",
                    state=name,
                    option=one,
                    found=other,
                )
        return RestoreChoices(drop, keep, renames, fields)


NO_CHOICES: Final = RestoreChoices()


def _both(first: Mapping[str, str], second: Mapping[str, str], state: str | None = None) -> dict[str, str]:
    """Return new names of states, or of the fields of a state; raise if two are given for one."""
    for old in first.keys() & second.keys():
        if first[old] != second[old]:
            what = "state" if state is None else f"field of {state!r},"
            raise StateDeclarationError(
                f"restore(…): {what} {old!r} becomes {first[old]!r} and also {second[old]!r}. Choose one of them.",
                state=old if state is None else state,
                field=None if state is None else old,
                option="rename_states" if state is None else "rename_fields",
                expected=first[old],
                found=second[old],
            )
    return {**first, **second}


class CheckedChoices:
    """Choices, the choices of earlier starts, and what is wrong with them."""

    def __init__(self, choices: RestoreChoices, past_choices: PastChoices) -> None:
        self.problems: list[StateVerdict] = []
        self.keep_states = frozenset(choices.keep_states)
        self.past_choices = past_choices
        self._renamed = frozenset(choices.rename_states)
        try:
            self.decisions = FileDecisions(frozenset(choices.drop_states), choices.rename_states, choices.rename_fields)
        except StateDeclarationError as error:
            self.decisions = NO_DECISIONS
            self.problems.append(_problem("options", str(error), "correct the options"))

    def contradictions(self, declared: Collection[str]) -> Iterator[StateVerdict]:
        """Yield choices that contradict each other or what is declared."""
        given = {
            "drop_states": self.decisions.drop_states, "keep_states": self.keep_states, "rename_states": self._renamed
        }  # fmt: skip
        for option, names in given.items():
            for name in sorted(names):
                if name in declared:
                    yield _problem(
                        option,
                        f"{name!r} is declared as well: the next start would apply this to what was written since",
                        "declare the new state under another name, or remove the option",
                    )
                others = [other for other in given if other < option and name in given[other]]
                if others:
                    yield _problem(option, f"{name!r} is in {others[0]} as well", "choose one of them")
        renames = self.decisions.rename_states
        for old, new in sorted(renames.items()):
            if new not in declared:
                yield _problem("rename_states", f"{old!r} becomes {new!r}, which is not declared", "declare it")
            if list(renames.values()).count(new) > 1:
                yield _problem("rename_states", f"more than one state becomes {new!r}", "correct it")
        for state, fields in sorted(self.decisions.rename_fields.items()):
            targets = {f"{path.rpartition('.')[0]}.{new}".lstrip(".") for path, new in fields.items()}
            for path in sorted(targets & fields.keys()):
                yield _problem(
                    f"rename_fields of {state}",
                    f"`{path}` is renamed and another field is renamed to it: the next start would rename that one too",
                    "rename them at two starts, with a checkpoint in between",
                )

    def unused(self, stored: Collection[str], dropped: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield (option, name) that names none of the `stored` states, unless an earlier start has done it: the state
        is `dropped`, or among the past choices."""
        decisions, before = self.decisions, self.past_choices.decisions
        for name in sorted(decisions.drop_states):
            if name not in stored and name not in dropped and name not in before.drop_states:
                yield "drop_states", name
        for name in sorted(self.keep_states - self.past_choices.keep_states):
            if name not in stored:
                yield "keep_states", name
        renamed = {old for old, new in decisions.rename_states.items() if new in stored}
        for option, names, done in (
            ("rename_states", decisions.rename_states, before.rename_states),
            ("rename_fields", decisions.rename_fields, before.rename_fields),
        ):
            for name in sorted(names):
                if name not in stored and name not in renamed and name not in done:
                    yield option, name


def _problem(name: str, reason: str, what_to_do: str) -> StateVerdict:
    return StateVerdict(name, "refused", (), reason, what_to_do)
