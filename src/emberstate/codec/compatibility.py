"""Whether bytes written under a stored schema can be read as the present type: the verdict, and the plan.

One walk over both descriptions makes a plan or finds the first reason against it. The verdict reports that
plan and `migration` carries it out, so a dry run and a restore cannot disagree.

What restores: added fields with defaults, removed fields, renamed fields that a rename map names, NamedTuple
fields in another order (by name), wider types (T to Optional[T], more enum members or literals), renamed or
moved classes. Everything else is rejected, naming the field: nothing is converted on a guess.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final, Literal

from emberstate.codec.base import Codec
from emberstate.codec.explain import Problem, explain
from emberstate.codec.nodes import KEYED, RECORDS, Field, Node
from emberstate.codec.stored import stored_node
from emberstate.codec.type_schema import PICKLE, TypeSchema

_NO_RENAMES: Final[Mapping[str, str]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether stored values can be read as the present type, and with which changes."""

    kind: Literal["compatible", "migrates", "refused"]
    fields: tuple[str, ...] = ()  # every difference, in words
    reason: str = ""  # why it is refused
    what_to_do: str = ""

    def __str__(self) -> str:
        text = "; ".join(part for part in (", ".join(self.fields), self.reason, self.what_to_do) if part)
        return f"{self.kind}: {text}" if text else self.kind


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Step:
    """How a value of `stored` becomes one of `node`: part by part."""

    stored: Node
    node: Node
    items: tuple[Step, ...] = ()  # of the parts of `stored`; of a union: of its members
    sources: tuple[tuple[Field, int | None, Step | None], ...] = ()  # present field, index of the stored one


class Refusal(Exception):
    """There is no plan."""

    def __init__(self, reason: str, what_to_do: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.what_to_do = what_to_do


def compare(stored: TypeSchema, codec: Codec[Any], renames: Mapping[str, str] = _NO_RENAMES) -> Verdict:
    """The verdict on reading what was written under `stored` as the type of `codec`.

    `renames` maps old field paths to new names: {"amount": "total"}, {"customer.mail": "email"}; lists, dicts
    and Optionals on the way are not part of a path. A field renamed to "" was removed, and stays so even if the
    type has a new one of that name.

    >>> from emberstate.codec import codec_for
    >>> print(compare(codec_for(int).schema, codec_for(int | None)))
    compatible: the value may now also be None
    >>> print(compare(codec_for(int).schema, codec_for(float)))
    refused: the value was int and is now float; keep the type, or store it in a new field or state
    """
    try:
        return plan(stored, codec, renames)[0]
    except Refusal as refusal:
        return Verdict("refused", (), refusal.reason, refusal.what_to_do)


def plan(stored: TypeSchema, codec: Codec[Any], renames: Mapping[str, str]) -> tuple[Verdict, Step | None]:
    """The verdict with what `migration` needs; raises Refusal."""
    if codec.node is None or stored.kind == PICKLE:
        if codec.node is None and stored.kind == PICKLE:
            return Verdict("compatible"), None
        was, now = (PICKLE, codec.name) if stored.kind == PICKLE else ("msgspec", PICKLE)
        raise Refusal(f"it was written by the {was} codec and is now declared with {now}", "keep the codec")
    planner = _Planner(renames)
    step = planner.step(stored_node(stored), codec.node, "", codec.is_key)
    planner.finish()
    kind: Literal["compatible", "migrates"] = "migrates" if planner.migrates else "compatible"
    return Verdict(kind, tuple(planner.notes), "", planner.advice()), step


class _Planner:
    """One walk. Paths are in the stored names."""

    def __init__(self, renames: Mapping[str, str]) -> None:
        self.notes: list[str] = []
        self.migrates = False
        self._renames = dict(renames)
        self._used: set[str] = set()
        self._added: list[str] = []
        self._removed: list[str] = []

    def step(self, stored: Node, node: Node, path: str, in_key: bool) -> Step:
        if "union" in (stored.kind, node.kind):
            return self._union(stored, node, path, in_key)
        if stored.kind != node.kind:
            raise _retyped(stored, node, path)
        if node.kind in ("enum", "literal"):
            self._members(stored, node, path, in_key)
        if node.kind in RECORDS:
            return self._record(stored, node, path, in_key)
        if len(stored.items) != len(node.items):
            raise _retyped(stored, node, path)
        if node.kind == "dict" and stored.items[0].sortable != node.items[0].sortable:
            self.migrates = True  # written as a map before, as pairs now, or the other way round
        items = []
        for i, (old, new) in enumerate(zip(stored.items, node.items, strict=True)):
            keyed = in_key or (node.kind in KEYED and i == 0)
            items.append(self.step(old, new, path, keyed))
        return Step(stored, node, tuple(items))

    def _union(self, stored: Node, node: Node, path: str, in_key: bool) -> Step:
        olds = stored.items if stored.kind == "union" else (stored,)
        news = node.items if node.kind == "union" else (node,)
        steps = []
        for old in olds:
            match = [new for new in news if new.kind == old.kind]
            if old.kind == "struct" and max(len(match), sum(other.kind == "struct" for other in olds)) > 1:
                match = [new for new in match if (new.tag, new.tag_field) == (old.tag, old.tag_field)]
            if not match:
                tagged = f" (its tag was {old.tag!r})" if old.tag is not None else ""
                raise _retyped(stored, node, path, f"{old.label} is no longer allowed{tagged}")
            steps.append(self.step(old, match[0], path, in_key))
        taken = {id(step.node) for step in steps}
        gained = [new.label for new in news if id(new) not in taken]
        if gained:
            self.notes.append(f"{_shown(path)} may now also be {' or '.join(gained)}")
        return Step(stored, node, tuple(steps)) if stored.kind == "union" else steps[0]

    def _members(self, stored: Node, node: Node, path: str, in_key: bool) -> None:
        if node.kind == "literal":
            known: dict[Any, Any] = {(type(value), value): value for value in node.members}
            gone = [repr(value) for value in stored.members if (type(value), value) not in known]
            gained = [
                repr(v)
                for v in node.members
                if not any(type(v) is type(o) and v == o for o in stored.members)
            ]
        else:
            assert node.cls is not None
            known = dict(node.cls.__members__)
            gone = [name for name in stored.members if name not in known]
            gained = [name for name in node.members if name not in stored.members]
            if not gone and in_key and len({known[name] for name in stored.members}) < len(stored.members):
                raise Refusal(
                    f"members of {node.label} in {_shown(path)} were made aliases of one another: "
                    "different keys would become one",
                    "keep them apart",
                )
        if gone:
            raise Refusal(
                f"{_shown(path)}: {node.label} no longer has {', '.join(gone)}",
                "keep the member"
                + (
                    " (a renamed one restores if its old name stays as an alias)"
                    if node.kind == "enum"
                    else ""
                ),
            )
        if gained:
            self.notes.append(f"{_shown(path)}: {node.label} gained {', '.join(gained)}")

    def _record(self, stored: Node, node: Node, path: str, in_key: bool) -> Step:
        present = {field.name: field for field in node.fields}
        old_of = self._new_names(stored, present, path)
        if (stored.tag, stored.tag_field) != (node.tag, node.tag_field):
            self._note(f"the tag of {node.label} was {stored.tag!r} and is {node.tag!r}")
        for field in stored.fields:
            if field.name not in old_of.values():
                if in_key:
                    raise Refusal(
                        f"`{_join(path, field.name)}` was removed from a key: two keys could become one",
                        "keep the field",
                    )
                self._removed.append(_join(path, field.name))
                self._note(f"removed `{_join(path, field.name)}`")
        index = {field.name: i for i, field in enumerate(stored.fields)}
        sources: list[tuple[Field, int | None, Step | None]] = []
        for name, field in present.items():
            if name not in old_of:
                sources.append((field, None, None))
                self._add(field, node, _join(path, name))
                continue
            old = stored.fields[index[old_of[name]]]
            if node.kind == "typeddict" and field.required and not old.required:
                raise Refusal(
                    f"`{_join(path, old.name)}` was NotRequired and is required now: a dict may lack it",
                    "leave it NotRequired",
                )
            sources.append(
                (field, index[old.name], self.step(old.node, field.node, _join(path, old.name), in_key))
            )
        kept = [i for _, i, _ in sources if i is not None]
        if node.kind == "namedtuple" and kept != sorted(kept):
            self._note(f"the fields of {node.label} are in another order (matched by name)")
        return Step(stored, node, (), tuple(sources))

    def _add(self, field: Field, node: Node, path: str) -> None:
        if node.kind == "typeddict":
            if field.required:
                raise Refusal(f"`{path}` was added to {node.label} as a required key", "make it NotRequired")
            self._note(f"added `{path}` (NotRequired)")
            return
        if field.required:
            raise Refusal(
                f"`{path}` was added without a default", "give it a default, or name it in the renames"
            )
        try:
            wrong = explain(field.node, field.make_default(), path=path)
        except Exception as error:
            wrong = Problem(path, f"its default factory raised {type(error).__name__}: {error}")
        if wrong is not None:
            raise Refusal(f"the default of `{path}` does not fit its type: {wrong}", "correct the default")
        self._added.append(path)
        self._note(f"added `{path}` ({field.default_text})")

    def _new_names(self, stored: Node, present: Mapping[str, Field], path: str) -> dict[str, str]:
        """Present name → stored name, for the stored fields that live on."""
        names = {field.name: field.name for field in stored.fields}
        for old_path, new_path in self._renames.items():
            parent, _, old = old_path.rpartition(".")
            new_parent, _, new = new_path.rpartition(".")
            if parent != path or (new_parent and new_parent != parent):
                continue
            if old not in names:
                if new in names:  # renamed in an earlier version already
                    self._used.add(old_path)
                continue
            if not new:  # removed once: it stays so, even if another field has its name now
                self._used.add(old_path)
                names[old] = ""
                continue
            if new not in present:
                raise Refusal(
                    f"`{old_path}` is renamed to `{new}`, which the type does not have", "correct the renames"
                )
            if new in names and new != old and _join(path, new) not in self._renames:
                raise Refusal(
                    f"`{old_path}` is renamed to `{new}`, but both are stored", "correct the renames"
                )
            self._used.add(old_path)
            names[old] = new
            self._note(f"renamed `{old_path}` → `{_join(path, new)}`")
        taken = [name for name in names.values() if name]
        for name in taken:
            if taken.count(name) > 1:
                raise Refusal(f"two stored fields are renamed to `{name}`", "correct the renames")
        return {new: old for old, new in names.items() if new in present}

    def _note(self, text: str) -> None:
        self.migrates = True
        self.notes.append(text)

    def advice(self) -> str:
        if self._added and self._removed:
            old, new = self._removed[0], self._added[0]
            return f"if `{old}` became `{new}`, say so in the renames: else its values are dropped"
        return ""

    def finish(self) -> None:
        unused = self._renames.keys() - self._used
        if unused:
            raise Refusal(f"the rename of `{min(unused)}` names no stored field", "correct the renames")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(path: str) -> str:
    return f"`{path}`" if path else "the value"


def _retyped(stored: Node, node: Node, path: str, why: str = "") -> Refusal:
    return Refusal(
        f"{_shown(path)} was {stored.label} and is now {node.label}" + (f" ({why})" if why else ""),
        "keep the type, or store it in a new field or state",
    )
