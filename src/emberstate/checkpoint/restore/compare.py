"""Compares a stored state with the declared one that it goes into: value, user key and namespace, and time to live.

The verdict on a restore and its decoders both use these `Part`s, so they cannot disagree.

Thread safety: pure; a `Found` changes only while a check makes it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from emberstate.checkpoint.files.bindings import StateBinding
from emberstate.checkpoint.files.field_paths import GONE, field_paths, forward, removed_fields
from emberstate.checkpoint.files.meta import TIMERS, StoredState, StoredTtl
from emberstate.checkpoint.restore.verdict import StateVerdict
from emberstate.codec import Codec, TypeSchema, compare
from emberstate.errors import LifecycleError
from emberstate.state.ttl.config import TtlClock


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of a state, as stored and as declared."""

    label: str  # "" for the value
    stored: TypeSchema
    codec: Codec[Any]
    renames: Mapping[str, str]  # for `compare` and `decoder_for`: only fields that are stored


def value_part(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> Part | None:
    """Return the value (element, user value, accumulator); None for timers."""
    return _part("", stored.type, binding.codec, renames)


def user_key_part(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> Part | None:
    """Return the user key of a map, or the timer (time, name, namespace); None for other states."""
    label = "timer" if stored.kind == TIMERS else "user key"
    return _part(label, stored.user_key, binding.user_key_codec, _of_keys(binding.user_key_codec, renames))


def namespace_part(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> Part | None:
    """Return the namespace."""
    return _part("namespace", stored.namespace, binding.namespace_codec, _of_keys(binding.namespace_codec, renames))


def parts_of(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> list[Part]:
    """Return all parts."""
    makers = (value_part, user_key_part, namespace_part)
    return [part for make in makers if (part := make(stored, binding, renames)) is not None]


def _of_keys(codec: Codec[Any] | None, renames: Mapping[str, str]) -> Mapping[str, str]:
    """Return the renames of a key's fields. If the key still has a field, its rename is for the value."""
    still = set() if codec is None else set(field_paths(codec.schema))
    return {path: new for path, new in renames.items() if path not in still}


def _part(
    label: str, stored: TypeSchema | None, codec: Codec[Any] | None, renames: Mapping[str, str]
) -> Part | None:
    if stored is None or codec is None:
        return None
    fields = set(field_paths(stored))
    return Part(label, stored, codec, {path: new for path, new in renames.items() if path in fields})


@dataclasses.dataclass(slots=True)
class Found:
    """How a file's state differs from the declared one."""

    renames: dict[str, str]
    """Fields by their paths in the file → their names now, or `GONE`."""
    stamp: tuple[int | None, ...]
    """As in `FileDecisions.stamps`; () if the rows' own stamps count, or none are needed."""
    fields: list[str] = dataclasses.field(default_factory=list)
    refusals: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # reason, what to do
    advice: str = ""
    migrates: bool = False

    def differs(self, what: str) -> None:
        """Note a difference that the restore migrates."""
        self.migrates = True
        self.fields.append(what)


def judge(
    stored: StoredState,
    binding: StateBinding,
    renames: Mapping[str, str],
    asked: set[str],
    stamp: tuple[int | None, ...],
    clock: TtlClock | None,
) -> Found:
    """Compare every part. `asked` are the renames of the present choices; the others are of earlier restores, and
    their fields may have been removed since."""
    found = Found(dict(renames), stamp)
    if stored.kind != binding.stored.kind:
        reason = f"it was a {stored.kind} state and is now a {binding.stored.kind} state"
        found.refusals.append((reason, "keep the kind, or store it under a new name"))
        return found
    if stored.codec != binding.stored.codec:
        reason = f"it was written by the {stored.codec} codec and is now declared with {binding.stored.codec}"
        found.refusals.append((reason, "keep the codec, or store it under a new name"))
        return found
    value = value_part(stored, binding, renames)
    if value is not None and value.codec.node is not None:
        present = set(field_paths(value.codec.schema))
        for path in value.renames.keys() - asked:
            if forward(path, value.renames) not in present:
                found.renames[path] = GONE
        found.renames.update(removed_fields(value.stored, value.codec.schema, found.renames))
    for part in parts_of(stored, binding, found.renames):
        verdict = compare(part.stored, part.codec, part.renames)
        prefix = f"its {part.label} type: " if part.label else ""
        if verdict.kind == "refused":
            found.refusals.append((prefix + verdict.reason, verdict.what_to_do))
        found.fields += [prefix + field for field in verdict.fields]
        found.migrates = found.migrates or verdict.kind == "migrates"
        found.advice = found.advice or verdict.what_to_do
    _judge_ttl(stored.ttl, binding, found, clock)
    return found


def _judge_ttl(was: StoredTtl | None, binding: StateBinding, found: Found, clock: TtlClock | None) -> None:
    now = binding.ttl
    unstamped = found.stamp == (None,) or (was is None and not found.stamp)
    if now is None:
        if not unstamped:
            found.differs("time to live switched off: what has not been cleaned up stays")
        found.stamp = () if was is None else (None,)
    elif unstamped:
        found.differs("time to live switched on: what is stored counts as written at the restore")
        try:
            found.stamp = () if clock is None else (clock.now(now.time),)
        except LifecycleError as error:
            what = f"time to live is switched on, and stamps begin now: {error}"
            found.refusals.append((what, "set the clock before the restore"))
    elif was is not None and was.time != now.time.value:
        found.refusals.append(
            (
                f"its time to live was in {was.time} time and is now in {now.time.value} time: stamps are of "
                f"another clock",
                "keep the time, or switch it off at one start and on again at the next",
            )
        )
    elif was is not None and was.micros != now.micros:
        found.differs(f"time to live was {timedelta(microseconds=was.micros)} and is now {now.duration}")


def merged(name: str, found: Sequence[Found]) -> StateVerdict:
    """Return one verdict for the state in all files."""
    refusals = list(dict.fromkeys(refusal for one in found for refusal in one.refusals))
    if refusals:
        reasons = "; ".join(f"{reason}; {way}" for reason, way in refusals[:-1])
        reason, way = refusals[-1]
        return StateVerdict(name, "refused", (), f"{reasons}; {reason}" if reasons else reason, way)
    fields = tuple(dict.fromkeys(field for one in found for field in one.fields))
    advice = next((one.advice for one in found if one.advice), "")
    return StateVerdict(name, "migrates" if any(one.migrates for one in found) else "compatible", fields, "", advice)


def not_kept(found: Sequence[tuple[StoredState, bool]]) -> str | None:
    """Return why a state cannot be kept as bytes; None if it can. One state cannot have bytes of two schemas."""
    if any(pending for _, pending in found):
        return "its fields were renamed or removed, or it got a time to live, after these files were written"
    first = found[0][0]
    for stored, _ in found[1:]:
        if _bytes_of(stored) != _bytes_of(first):
            return "these files declare it differently"
    return None


def _bytes_of(stored: StoredState) -> tuple[object, ...]:
    """Return everything that its bytes depend on: not the length of its time to live."""
    ttl = None if stored.ttl is None else stored.ttl.time
    return stored.kind, stored.codec, stored.type, stored.user_key, stored.namespace, ttl
