"""`RestoreVerdict`: what becomes of a checkpoint's states under the present program.

`check_restore` makes it. A dry run shows it; a restore raises if it is a refusal, else does what it says.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Literal

from emberstate._html import table_html
from emberstate.checkpoint.files.meta import StoredState
from emberstate.checkpoint.manifest.decisions import NO_PAST_CHOICES, FileDecisions, PastChoices
from emberstate.errors import Place, RestoreRefusedError

#: The most lines of an error.
_SHOWN: Final = 50


@dataclasses.dataclass(frozen=True, slots=True)
class StateVerdict:
    """What becomes of one state."""

    name: str
    """The state's name; for a timer queue, `timers/` and its name; for another problem, its subject."""
    kind: Literal["compatible", "migrates", "new", "dropped", "kept", "refused"]
    fields: tuple[str, ...] = ()
    """Every difference, in words."""
    reason: str = ""
    """Why it is refused."""
    what_to_do: str = ""

    def __str__(self) -> str:
        return "; ".join(part for part in (", ".join(self.fields), self.reason, self.what_to_do) if part)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**dataclasses.asdict(self), "fields": list(self.fields)}


@dataclasses.dataclass(frozen=True, slots=True)
class RestoreVerdict:
    """What becomes of all states, and what the next manifest stores.

    >>> verdict = RestoreVerdict((StateVerdict("total", "migrates", ("added `note` ('')",)), StateVerdict("x", "new")))
    >>> print(verdict)
    migrates
    total  migrates  added `note` ('')
    x      new
    """

    states: tuple[StateVerdict, ...] = ()
    """The verdict on each stored or declared state."""
    problems: tuple[StateVerdict, ...] = ()
    """What is wrong beyond a single state: keys, options."""
    decisions: tuple[FileDecisions, ...] = ()
    """For each file, in the order given, the decisions to store beside it; empty if refused."""
    past_choices: PastChoices = NO_PAST_CHOICES
    """For `check_restore` at later starts, and for `restore` in every slot, which sees only some of the files: a choice
    whose state is gone, or in other files, is no mistake."""
    kept: tuple[StoredState, ...] = ()
    """The states that are kept as bytes, under their present names."""
    queues: tuple[str, ...] = ()
    """Stored timer queues that are not declared; the restore makes them."""

    @property
    def kind(self) -> Literal["compatible", "migrates", "refused"]:
        """The overall verdict. New and kept states do not change what is stored."""
        kinds = {state.kind for state in (*self.problems, *self.states)}
        if "refused" in kinds:
            return "refused"
        return "migrates" if kinds & {"migrates", "dropped"} else "compatible"

    def refuse(self) -> None:
        """Raise one error with everything that is refused, if anything is.

        Raises:
            RestoreRefusedError: something is refused.
        """
        wrong = [state for state in (*self.problems, *self.states) if state.kind == "refused"]
        if wrong:
            lines = [f"- {state.name}: {state}" for state in wrong[:_SHOWN]]
            if len(wrong) > _SHOWN:
                lines.append(f"- and {len(wrong) - _SHOWN} more")
            place: Place = {}
            if len(wrong) == 1:
                name = wrong[0].name
                place = {"state": name} if any(state.name == name for state in self.states) else {"option": name}
            raise RestoreRefusedError("\n".join(["the checkpoint does not fit what is declared:", *lines]), **place)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {
            "kind": self.kind,
            "problems": [problem.to_dict() for problem in self.problems],
            "states": [state.to_dict() for state in self.states],
        }

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        rows = [(state.name, state.kind, str(state)) for state in (*self.problems, *self.states)]
        return table_html(f"Restore: {self.kind}", ("state", "verdict", "why, and what to do"), rows, len(rows))

    def __str__(self) -> str:
        """Return a table with a line for each state, problems first."""
        rows = [(state.name, state.kind, str(state)) for state in (*self.problems, *self.states)]
        name, kind = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
        return "\n".join([self.kind, *(f"{row[0]:{name}}  {row[1]:{kind}}  {row[2]}".rstrip() for row in rows)])
