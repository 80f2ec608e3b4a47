"""What restores into a changed program decided, as a manifest stores it.

`FileDecisions`: which states of a file are dropped, renamed or stamped. A file keeps the schema it was written with,
so the manifest stores the decisions beside every reference to it, until a new base replaces the file.

`PastChoices`: the restore choices of earlier starts. A program is started again with the same choices, when the states
that they name may be gone because a base has replaced the files. That is no mistake.

States have the names of the file; a timer queue is `timers/` and its name (no state's name has a slash). Fields are
paths of stored names, as in `codec.compare`: "amount", "customer.mail".

Invariants: canonical. Decisions without effect (a rename to itself, a decision about a dropped state) are left out, so
equal decisions are equal values.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Final

from emberstate.checkpoint.files.field_paths import backward, forward
from emberstate.checkpoint.files.meta import TIMERS_PREFIX, StoredState
from emberstate.errors import CorruptionError, EmberstateError, StateDeclarationError
from emberstate.state.descriptors import check_state_name


@dataclasses.dataclass(frozen=True, slots=True)
class FileDecisions:
    """Decisions about the states of one file.

    >>> first = FileDecisions(rename_states={"total": "sum"}, rename_fields={"total": {"amount": "cents"}})
    >>> then = first.then(FileDecisions(rename_states={"sum": "balance"}, rename_fields={"sum": {"cents": "value"}}))
    >>> then.name_of("total"), then.fields_of("total")["amount"]
    ('balance', 'value')
    """

    drop_states: frozenset[str] = frozenset()
    """States whose rows are skipped."""
    rename_states: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Name in the file → name now."""
    rename_fields: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """Name in the file → {path of a field in the file: its name now, or "" for a removed field}."""
    stamps: Mapping[str, int | None] = dataclasses.field(default_factory=dict)
    """Name in the file → µs: a time to live was switched on, and all rows count as written then; None: it was switched
    off, and the rows' own stamps no longer count."""

    def __post_init__(self) -> None:
        drops = frozenset(self.drop_states)
        renames = {old: new for old, new in self.rename_states.items() if old != new and old not in drops}
        fields: dict[str, dict[str, str]] = {}
        for state, paths in self.rename_fields.items():
            named = {path: _last(new) for path, new in paths.items() if _last(path) != _last(new)}
            if named and state not in drops:
                fields[state] = named
        stamps = {state: micros for state, micros in self.stamps.items() if state not in drops}
        for name in (*drops, *renames, *renames.values(), *fields, *stamps):
            check_address(name)
        for old, new in renames.items():
            if is_queue(old) != is_queue(new):
                raise StateDeclarationError(
                    f"{old!r} cannot be renamed to {new!r}: one is a timer queue, one a state", state=old
                )
        for field, value in (
            ("drop_states", drops), ("rename_states", renames), ("rename_fields", fields), ("stamps", stamps)
        ):  # fmt: skip
            object.__setattr__(self, field, value)  # the class is frozen

    def __hash__(self) -> int:
        return hash((self.drop_states, frozenset(self.rename_states.items()), frozenset(self.rename_fields)))

    def __bool__(self) -> bool:
        """Return whether anything was decided."""
        return bool(self.drop_states or self.rename_states or self.rename_fields or self.stamps)

    def name_of(self, state: str) -> str | None:
        """Return the present name of a state of the file; None if it was dropped."""
        return None if state in self.drop_states else self.rename_states.get(state, state)

    def fields_of(self, state: str) -> dict[str, str]:
        """Return the renamed fields of a state of the file: path there → name now."""
        return dict(self.rename_fields.get(state, {}))

    def then(self, newer: FileDecisions) -> FileDecisions:
        """Return these decisions followed by `newer`, which uses the names that these lead to."""
        touched = {*self.drop_states, *self.rename_states, *self.rename_fields, *self.stamps}
        # A name that these decisions have moved away is, in `newer`, another state of later files.
        touched |= {*newer.drop_states, *newer.rename_states, *newer.rename_fields, *newer.stamps}
        drops, renames, fields, stamps = set(), {}, {}, {}
        for state in touched:
            now = self.name_of(state)
            later = None if now is None else newer.name_of(now)
            if now is None or later is None:
                drops.add(state)
                continue
            renames[state] = later
            fields[state] = _compose(self.fields_of(state), newer.fields_of(now))
            if now in newer.stamps or state in self.stamps:
                stamps[state] = newer.stamps[now] if now in newer.stamps else self.stamps[state]
        return FileDecisions(frozenset(drops), renames, fields, stamps)

    def restricted_to(self, states: Iterable[StoredState]) -> FileDecisions:
        """Return the decisions about these states alone."""
        by_name = {state.address: state for state in states}
        names = by_name.keys()
        fields = {
            name: {path: new for path, new in paths.items() if by_name[name].has_field(path)}
            for name, paths in self.rename_fields.items()
            if name in names
        }
        return FileDecisions(
            self.drop_states & names,
            {old: new for old, new in self.rename_states.items() if old in names},
            fields,
            {state: micros for state, micros in self.stamps.items() if state in names},
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON, without what is empty.

        >>> FileDecisions(frozenset({"old"}), {"a": "b"}).to_dict()
        {'drop_states': ['old'], 'rename_states': {'a': 'b'}}
        """
        plain = {
            "drop_states": sorted(self.drop_states),
            "rename_states": dict(sorted(self.rename_states.items())),
            "rename_fields": {name: dict(sorted(paths.items())) for name, paths in sorted(self.rename_fields.items())},
            "stamps": dict(sorted(self.stamps.items())),
        }
        return {name: value for name, value in plain.items() if value}

    @staticmethod
    def from_dict(plain: Any) -> FileDecisions:
        """Return the decisions that `to_dict` returned as plain data. Raises only `CorruptionError`.

        Rejects an unknown field: ignoring a decision would restore another state.
        """
        if not isinstance(plain, dict) or not plain.keys() <= _FIELDS:
            unknown = tuple(sorted(plain.keys() - _FIELDS)) if isinstance(plain, dict) else None
            raise CorruptionError(f"expected decisions about a file's states, found {plain!r:.200}", found=unknown)
        drops, renames = plain.get("drop_states", []), plain.get("rename_states", {})
        fields, stamps = plain.get("rename_fields", {}), plain.get("stamps", {})
        sound = (
            isinstance(drops, list) and all(type(name) is str for name in drops)
            and _is_texts(renames)
            and isinstance(fields, dict) and all(_is_texts(paths) for paths in fields.values())
            and isinstance(stamps, dict)
            and all(m is None or (type(m) is int and -(2**63) <= m < 2**63) for m in stamps.values())
        )  # fmt: skip
        if not sound:
            raise CorruptionError(f"decisions about a file's states are malformed: {plain!r:.200}")
        try:
            return FileDecisions(frozenset(drops), renames, fields, stamps)
        except EmberstateError as error:
            what = f"decisions about a file's states are malformed: {error!s:.300}"
            raise CorruptionError(what, **error.place) from None


NO_DECISIONS: Final = FileDecisions()
"""Nothing was decided: the file's own names count."""

_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(FileDecisions))


def is_queue(address: str) -> bool:
    """Return whether the address names a timer queue.

    >>> is_queue("timers/event"), is_queue("timers")
    (True, False)
    """
    return address.startswith(TIMERS_PREFIX)


def check_address(address: str) -> None:
    """Reject an address that can name neither a state nor, after `timers/`, a timer queue."""
    check_state_name(address.removeprefix(TIMERS_PREFIX) if isinstance(address, str) else address)


def _compose(older: Mapping[str, str], newer: Mapping[str, str]) -> dict[str, str]:
    """Return the renames of fields in sequence; all paths in the file's names."""
    found = {}
    for path, name in older.items():
        found[path] = _last(newer.get(forward(path, older), name))
    for path, name in newer.items():
        for source in backward(path, older):
            if source not in older:
                found[source] = _last(name)
    return found


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _is_texts(value: Any) -> bool:
    return isinstance(value, dict) and all(type(text) is str for pair in value.items() for text in pair)


@dataclasses.dataclass(frozen=True, slots=True)
class PastChoices:
    """The choices of earlier starts. The same choice again may name no stored state, since it has been carried out.

    A slot, which restores only some of the files, needs them too: a choice may name a state of the others.

    >>> first = PastChoices().with_options(FileDecisions(rename_states={"a": "b"}), frozenset({"kept"}))
    >>> PastChoices.from_dict(first.to_dict()) == first
    True
    """

    decisions: FileDecisions = NO_DECISIONS
    keep_states: frozenset[str] = frozenset()

    def with_options(self, options: FileDecisions, keep_states: frozenset[str]) -> PastChoices:
        """Return these and the present choices."""
        before = self.decisions
        fields = {
            state: {**before.fields_of(state), **options.fields_of(state)}
            for state in (*before.rename_fields, *options.rename_fields)
        }
        renames = {**before.rename_states, **options.rename_states}
        drops = before.drop_states | options.drop_states
        return PastChoices(FileDecisions(drops, renames, fields), self.keep_states | keep_states)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"decisions": self.decisions.to_dict(), "keep_states": sorted(self.keep_states)}

    @staticmethod
    def from_dict(plain: Any) -> PastChoices:
        """Return the choices that `to_dict` returned as plain data. Raises only `CorruptionError`."""
        keep = plain.get("keep_states") if isinstance(plain, dict) else None
        if not isinstance(keep, list) or any(type(name) is not str for name in keep):
            raise CorruptionError(f"expected the choices of earlier starts, found {plain!r:.200}")
        return PastChoices(FileDecisions.from_dict(plain.get("decisions")), frozenset(keep))


NO_PAST_CHOICES: Final = PastChoices()
"""No choices were ever made."""
