"""`Settled`: what the options of a restore said at earlier starts of the pipeline.

A program is started again with the options it has. What they name may be gone by then, because they did their
work and a base took the place of the files; that is no mistake. So a manifest remembers.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from emberstate.checkpoint.evolution import NO_EVOLUTION, Evolution
from emberstate.errors import CorruptionError


@dataclasses.dataclass(frozen=True, slots=True)
class Settled:
    """What options said at earlier starts: said again, it may name nothing, for it has been done.

    A slot that restores only some of the files needs it too: what an option names may be in the others.

    >>> first = Settled().with_options(Evolution(rename_states={"a": "b"}), frozenset({"kept"}))
    >>> Settled.from_dict(first.to_dict()) == first
    True
    """

    decisions: Evolution = NO_EVOLUTION
    keep_states: frozenset[str] = frozenset()

    def with_options(self, options: Evolution, keep_states: frozenset[str]) -> Settled:
        """This, and what is said now."""
        before = self.decisions
        fields = {
            state: {**before.fields_of(state), **options.fields_of(state)}
            for state in (*before.rename_fields, *options.rename_fields)
        }
        renames = {**before.rename_states, **options.rename_states}
        drops = before.drop_states | options.drop_states
        return Settled(Evolution(drops, renames, fields), self.keep_states | keep_states)

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {"decisions": self.decisions.to_dict(), "keep_states": sorted(self.keep_states)}

    @staticmethod
    def from_dict(plain: Any) -> Settled:
        """What `to_dict` gave; CorruptionError, and nothing else, if it is something else."""
        keep = plain.get("keep_states") if isinstance(plain, dict) else None
        if not isinstance(keep, list) or any(type(name) is not str for name in keep):
            raise CorruptionError(f"this is not what options said at earlier starts: {plain!r:.200}")
        return Settled(Evolution.from_dict(plain.get("decisions")), frozenset(keep))


NOTHING_SETTLED: Final = Settled()
"""No options were ever given."""
