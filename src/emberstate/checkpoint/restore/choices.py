"""What a program may say about states that it no longer has, or has otherwise, and what is wrong with that.

Options name states and fields as the checkpoint has them now. They may stay in a program that is started again
and again, so they must mean the same the second time: a state that is dropped, kept or renamed cannot be
declared as well, and a field that is renamed cannot still be there. Else the second start would drop, or rename,
what was written since the first.

Thread safety: immutable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, TypedDict

from emberstate.checkpoint.manifest.decisions import NO_DECISIONS, FileDecisions, PastChoices
from emberstate.checkpoint.restore.verdict import StateVerdict
from emberstate.errors import StateDeclarationError

NOTHING: Final[Mapping[str, Any]] = {}


class RestoreOptions(TypedDict, total=False):
    """The options of a restore."""

    rename_states: Mapping[str, str]
    """{stored name: declared name}; timer queues are named `timers/…`, here and below."""
    rename_fields: Mapping[str, Mapping[str, str]]
    """{stored name: {path of a field: its name now}}"""
    drop_states: Iterable[str]
    """Stored states whose rows are passed over."""
    keep_states: Iterable[str]
    """Stored states that are carried along as bytes."""
    past_choices: PastChoices
    """Of the verdict of the last start."""


class Options:
    """Options as they were given; what is wrong with them in themselves is in `problems`."""

    def __init__(
        self,
        rename_states: Mapping[str, str],
        rename_fields: Mapping[str, Mapping[str, str]],
        drop_states: Iterable[str],
        keep_states: Iterable[str],
        past_choices: PastChoices,
    ) -> None:
        self.problems: list[StateVerdict] = []
        self.keep_states = self._names("keep_states", keep_states)
        self.past_choices = past_choices
        self._renamed = frozenset(rename_states)
        drop = self._names("drop_states", drop_states)
        try:
            self.decisions = FileDecisions(drop, rename_states, rename_fields)
        except StateDeclarationError as error:
            self.decisions = NO_DECISIONS
            self.problems.append(_problem("options", str(error), "correct the options"))

    def _names(self, option: str, names: Iterable[str]) -> frozenset[str]:
        if isinstance(names, str):
            self.problems.append(_problem(option, f"{names!r} is a text, not a list of names", f"write [{names!r}]"))
            return frozenset({names})
        return frozenset(names)

    def contradictions(self, declared: Collection[str]) -> Iterator[StateVerdict]:
        """What does not go together, or not with what is declared."""
        given = {
            "drop_states": self.decisions.drop_states, "keep_states": self.keep_states, "rename_states": self._renamed
        }  # fmt: skip
        for option, names in given.items():
            for name in sorted(names):
                if name in declared:
                    yield _problem(
                        option,
                        f"{name!r} is declared as well: at the next start, what was written since would be meant",
                        "declare the new state under another name, or do without the option",
                    )
                others = [other for other in given if other < option and name in given[other]]
                if others:
                    yield _problem(option, f"{name!r} is in {others[0]} as well", "decide for one")
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
                    f"`{path}` is renamed and something else is renamed to it: at the next start it would be again",
                    "rename them at two starts, with a checkpoint in between",
                )

    def unused(self, stored: Collection[str], dropped: Collection[str]) -> Iterator[tuple[str, str]]:
        """(option, name) that names none of the `stored` states, unless it was done before: it is `dropped`, or
        settled."""
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
