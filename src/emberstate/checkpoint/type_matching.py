"""Which part of a stored state is read as which declared type: value, user key, namespace.

The verdict on a restore and the decoders of a restore are both made from this, so they cannot disagree.

Thread safety: pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from emberstate.checkpoint.state_bindings import StateBinding
from emberstate.checkpoint.state_meta import TIMERS, StoredState
from emberstate.checkpoint.stored_fields import field_paths
from emberstate.codec import Codec, TypeSchema


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """A part of a state: as it is stored, and as it is declared."""

    label: str  # "" for the value
    stored: TypeSchema
    codec: Codec[Any]
    renames: Mapping[str, str]  # for `compare` and `decoder_for`: only fields that are stored


def value_part(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> Part | None:
    """The value (element, user value, accumulator); None for timers."""
    return _part("", stored.type, binding.codec, renames)


def user_key_part(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> Part | None:
    """The user key of a map, or the timer (time, name, namespace)."""
    label = "timer" if stored.kind == TIMERS else "user key"
    return _part(label, stored.user_key, binding.user_key_codec, _of_keys(binding.user_key_codec, renames))


def namespace_part(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> Part | None:
    """The namespace."""
    return _part("namespace", stored.namespace, binding.namespace_codec, _of_keys(binding.namespace_codec, renames))


def parts_of(stored: StoredState, binding: StateBinding, renames: Mapping[str, str]) -> list[Part]:
    """All of them."""
    makers = (value_part, user_key_part, namespace_part)
    return [part for make in makers if (part := make(stored, binding, renames)) is not None]


def _of_keys(codec: Codec[Any] | None, renames: Mapping[str, str]) -> Mapping[str, str]:
    """What concerns keys: a rename is meant for the value if the key still has the field."""
    still = set() if codec is None else set(field_paths(codec.schema))
    return {path: new for path, new in renames.items() if path not in still}


def _part(
    label: str, stored: TypeSchema | None, codec: Codec[Any] | None, renames: Mapping[str, str]
) -> Part | None:
    if stored is None or codec is None:
        return None
    fields = set(field_paths(stored))
    return Part(label, stored, codec, {path: new for path, new in renames.items() if path in fields})

