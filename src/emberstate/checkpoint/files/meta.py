"""The metadata of a state file: format version, key schema, states with their types; and the index of its batches.

Two canonical JSON texts. `FileMeta` is known before the first row is written and is the schema's metadata; the
`BatchEntry`s are the index, in the footer. docs/format.md specifies both.

Readers ignore unknown fields. A writer lists under "requires" what a reader must support; a reader rejects a file that
requires something unknown, or has a later format version.

Invariants: reading raises CorruptionError or RestoreRefusedError and nothing else; every number is in its
range.

Thread safety: values are immutable.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import sys
from typing import Any, Final

from emberstate.checkpoint.files.field_paths import has_field
from emberstate.checkpoint.files.limits import FileLimits
from emberstate.codec import TypeSchema
from emberstate.errors import (
    CodecError,
    CorruptionError,
    EmberstateError,
    RestoreRefusedError,
    StateDeclarationError,
)
from emberstate.keygroups import KeyGroupRange, KeySchema, check_max_parallelism
from emberstate.state.declarations import MAX_STATES
from emberstate.state.descriptors import check_state_name
from emberstate.state.ttl.config import TtlTime

FORMAT: Final = "emberstate state file"
FORMAT_VERSION: Final = 1

#: What this reader supports beyond version 1: nothing yet.
KNOWN_REQUIREMENTS: Final[frozenset[str]] = frozenset()

TIMERS: Final = "timers"
#: The prefix of a timer queue's name among names of states.
TIMERS_PREFIX: Final = "timers/"
KINDS: Final = frozenset({"value", "list", "map", "reducing", "aggregating", TIMERS})
CODECS: Final = frozenset({"msgspec", "pickle"})


def library_version() -> str:
    """Return the version of this library, which files name as their writer."""
    version: str = sys.modules[__package__.partition(".")[0]].__version__
    return version


@dataclasses.dataclass(frozen=True, slots=True)
class StoredTtl:
    """Time to live of a stored state: its rows have stamps."""

    micros: int
    time: str


@dataclasses.dataclass(frozen=True, slots=True)
class StoredState:
    """A state or timer queue as its writer declared it."""

    name: str
    kind: str
    codec: str
    type: TypeSchema | None  # None for timers
    user_key: TypeSchema | None  # of maps and timers
    namespace: TypeSchema
    ttl: StoredTtl | None

    @property
    def identity(self) -> tuple[bool, str]:
        """Identifies and orders states: queues have separate names, and come last."""
        return self.kind == TIMERS, self.name

    @property
    def address(self) -> str:
        """The name in choices and verdicts: of queues with `timers/`, which no state's name begins with."""
        return TIMERS_PREFIX + self.name if self.kind == TIMERS else self.name

    def has_field(self, path: str) -> bool:
        """Return whether the type of its value, user key or namespace has the field."""
        return any(has_field(part, path) for part in (self.type, self.user_key, self.namespace))

    @property
    def label(self) -> str:
        """The description for messages."""
        return f"timer queue {self.name!r}" if self.kind == TIMERS else f"{self.kind} state {self.name!r}"


@dataclasses.dataclass(frozen=True, slots=True)
class FileMeta:
    """The metadata of a file."""

    kind: str  # "delta" or "base"
    key_schema: tuple[str, ...]
    max_parallelism: int
    key_groups: KeyGroupRange
    states: tuple[StoredState, ...]
    merged: int = 1  # the number of deltas that were merged
    library: str = dataclasses.field(default_factory=library_version)

    def to_json(self) -> bytes:
        """Return canonical JSON; reject more states than a reader accepts."""
        if len(self.states) > MAX_STATES:
            what = f"{len(self.states):,} states and timer queues for one state file: a reader accepts {MAX_STATES:,}"
            raise StateDeclarationError(what, expected=MAX_STATES, found=len(self.states))
        return _dump(
            {
                "format": FORMAT,
                "version": FORMAT_VERSION,
                "requires": [],
                "library": self.library,
                "kind": self.kind,
                "merged": self.merged,
                "key_schema": list(self.key_schema),
                "max_parallelism": self.max_parallelism,
                "key_groups": [self.key_groups.start, self.key_groups.end],
                "states": [_plain_state(state) for state in self.states],
            }
        )

    @staticmethod
    def from_json(text: bytes, limits: FileLimits) -> FileMeta:
        """Return the metadata that `to_json` wrote, in this version or a later one that requires nothing unknown."""
        plain = _load(text)
        if plain.get("format") != FORMAT:
            raise CorruptionError(f"the metadata is not that of a state file: format {plain.get('format')!r:.60}")
        version = _number(plain, "version", 1, 2**31)
        if version > FORMAT_VERSION:
            raise RestoreRefusedError(
                f"the file has format version {version}, written by emberstate {_text(plain, 'library')}; "
                f"this reader reads up to version {FORMAT_VERSION}. Use that or a later emberstate.",
                expected=FORMAT_VERSION,
                found=version,
            )
        unknown = sorted(set(_texts(plain, "requires")) - KNOWN_REQUIREMENTS)
        if unknown:
            raise RestoreRefusedError(
                f"the file requires {unknown[:10]} to be understood, written by emberstate "
                f"{_text(plain, 'library')}; this reader does not. Use that or a later version of emberstate.",
                expected=tuple(sorted(KNOWN_REQUIREMENTS)),
                found=tuple(unknown[:10]),
            )
        return _read_meta(plain, limits)


@dataclasses.dataclass(frozen=True, slots=True)
class BatchEntry:
    """A record batch: the key groups in it, its rows, and the CRC-32 of its message."""

    first: int
    last: int
    rows: int
    checksum: int


def index_to_json(entries: list[BatchEntry]) -> bytes:
    """Return the index of a file, in the order of its batches."""
    return _dump({"batches": [[entry.first, entry.last, entry.rows, entry.checksum] for entry in entries]})


def index_from_json(text: bytes, meta: FileMeta, limits: FileLimits) -> list[BatchEntry]:
    """Return the batches of an index; they ascend by key group within the file's range."""
    entries = []
    previous = meta.key_groups.start
    for item in _list(_load(text), "batches"):
        if not isinstance(item, list) or len(item) < 4 or any(type(number) is not int for number in item[:4]):
            raise CorruptionError(f"the index has a malformed entry: {item!r:.80}")
        entry = BatchEntry(*item[:4])
        spans = entry.first != entry.last and meta.kind == "base"
        if spans or not previous <= entry.first <= entry.last <= meta.key_groups.end:
            raise CorruptionError(f"the index has key groups out of order or range: {item!r:.80}")
        if not 1 <= entry.rows <= limits.batch_rows:
            raise CorruptionError(
                f"a record batch of {entry.rows} rows; the limit is {limits.batch_rows} "
                f"(FileLimits.batch_rows), and there is at least one"
            )
        previous = entry.last
        entries.append(entry)
    return entries


def _plain_state(state: StoredState) -> dict[str, Any]:
    return {
        "name": state.name,
        "kind": state.kind,
        "codec": state.codec,
        "type": _plain_type(state.type),
        "user_key": _plain_type(state.user_key),
        "namespace": _plain_type(state.namespace),
        "ttl": None if state.ttl is None else {"micros": state.ttl.micros, "time": state.ttl.time},
    }


def _plain_type(schema: TypeSchema | None) -> Any:
    return None if schema is None else json.loads(schema.to_json())


def _read_meta(plain: dict[str, Any], limits: FileLimits) -> FileMeta:
    if plain.get("kind") not in ("delta", "base"):
        raise CorruptionError(f"a state file is a delta or a base, not {plain.get('kind')!r:.60}")
    names = _texts(plain, "key_schema")
    bounds = _list(plain, "key_groups")
    try:
        key_schema = KeySchema(names).type_names
        max_parallelism = _number(plain, "max_parallelism", 1, 2**31)
        check_max_parallelism(max_parallelism)
        key_groups = KeyGroupRange(*bounds) if len(bounds) == 2 else KeyGroupRange.EMPTY
    except EmberstateError as error:
        raise CorruptionError(f"the metadata is malformed: {error!s:.300}") from None
    if key_schema != tuple(names) or not key_groups or key_groups.end >= max_parallelism:
        raise CorruptionError(
            f"the metadata is malformed: key schema {names!r:.200}, key groups {bounds!r:.60} of {max_parallelism}"
        )
    items = _list(plain, "states")
    if len(items) > limits.states:
        what = f"the file declares {len(items)} states, the limit is {limits.states}"
        raise CorruptionError(what, option="states", expected=limits.states, found=len(items))
    states = tuple(_read_state(item) for item in items)
    identities = [state.identity for state in states]
    if any(one >= other for one, other in itertools.pairwise(identities)):
        raise CorruptionError("the file's states are not in order, or one is there twice")
    merged = _number(plain, "merged", 1, 2**31)
    return FileMeta(plain["kind"], key_schema, max_parallelism, key_groups, states, merged, _text(plain, "library"))


def _read_state(plain: Any) -> StoredState:
    if not isinstance(plain, dict):
        raise CorruptionError(f"a state is described by {plain!r:.60}")
    kind = plain.get("kind")
    if kind not in KINDS or plain.get("codec") not in CODECS:
        raise CorruptionError(
            f"a state of kind {kind!r:.60} and codec {plain.get('codec')!r:.60} is none of this version"
        )
    ttl = plain.get("ttl")
    if ttl is not None:
        if not isinstance(ttl, dict) or ttl.get("time") not in {time.value for time in TtlTime}:
            raise CorruptionError(f"a time to live is malformed: {ttl!r:.80}")
        ttl = StoredTtl(_number(ttl, "micros", 1, 2**63 - 1), ttl["time"])
    try:
        name = check_state_name(plain.get("name"))
        type_ = None if kind == TIMERS else _schema(plain.get("type"))
        user_key = _schema(plain.get("user_key")) if kind in ("map", TIMERS) else None
        namespace = _schema(plain.get("namespace"))
    except EmberstateError as error:
        what = f"the description of a state is malformed: {error!s:.300}"
        raise CorruptionError(what, **error.place).located(state=f"{plain.get('name')!s:.100}") from None
    parts = [] if user_key is None or user_key.kind != "tuple" else [part.kind for part in user_key.items]
    if kind == TIMERS and (parts[:2] != ["int", "str"] or len(parts) != 3):
        raise CorruptionError(f"timers of queue {name!r:.60} are no (time, name, namespace)")
    return StoredState(name, kind, plain["codec"], type_, user_key, namespace, ttl)


def _schema(plain: Any) -> TypeSchema:
    try:
        return TypeSchema.from_json(json.dumps(plain))
    except RecursionError:
        raise CodecError("a type schema is nested too deeply") from None


def _dump(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


def _load(text: bytes) -> dict[str, Any]:
    try:
        plain = json.loads(text.decode())
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise CorruptionError(f"the metadata is no JSON: {error!s:.200}") from None
    if not isinstance(plain, dict):
        raise CorruptionError(f"the metadata is no JSON object but {type(plain).__name__}")
    return plain


def _number(plain: dict[str, Any], name: str, least: int, most: int) -> int:
    value = plain.get(name)
    if type(value) is not int or not least <= value <= most:
        raise CorruptionError(f"{name!r} in the metadata is no number from {least} to {most}: {value!r:.60}")
    return value


def _text(plain: dict[str, Any], name: str) -> str:
    value = plain.get(name)
    if type(value) is not str or len(value) > 200 or not value.isprintable():
        raise CorruptionError(f"{name!r} in the metadata is no short text: {value!r:.60}")
    return value


def _list(plain: dict[str, Any], name: str) -> list[Any]:
    value = plain.get(name)
    if type(value) is not list:
        raise CorruptionError(f"{name!r} in the metadata is no list: {value!r:.60}")
    return value


def _texts(plain: dict[str, Any], name: str) -> list[str]:
    values = _list(plain, name)
    if any(type(value) is not str for value in values):
        raise CorruptionError(f"{name!r} in the metadata is no list of texts: {values!r:.80}")
    return values
