"""Work to break a job with: states of every kind, with time to live and timers; and an oracle in plain Python.

What a batch holds follows from a seed and its number, and its times from its number. So the oracle, outside
the process that dies, knows the state and the output after every batch, and a committed checkpoint is right
only if it is exactly that.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from emberstate.checkpoint.backends import StateBackend
from emberstate.checkpoint.commit.messages import SlotTask
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.chain import ChainPolicy
from emberstate.checkpoint.manifest.model import Manifest
from emberstate.clock import ManualClock
from emberstate.state.descriptors import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from emberstate.state.keyed_state_backend import KeyedStateBackend
from emberstate.state.ttl.config import TtlConfig
from emberstate.storage.interface import Storage
from tests.checkpoint.driver import Job
from tests.checkpoint.stored import read_content, read_output
from tests.checkpoint.work import Content, Output, Work

SECOND: Final = 1_000_000
KEYS: Final = tuple(f"k{number:02}" for number in range(24))
MAX_PARALLELISM: Final = 6
LIFETIME: Final = 4 * SECOND
PROFILES: Final = "profiles"
AUDIT: Final = "audit"

_TTL = TtlConfig(timedelta(microseconds=LIFETIME))
COUNT = ValueStateDescriptor("count", int)
LOG = ListStateDescriptor("log", str)
SEEN = MapStateDescriptor("seen", str, int)
BEST = ReducingStateDescriptor("best", max, int)
LAST = ValueStateDescriptor("last", str, ttl=_TTL)
RECENT = MapStateDescriptor("recent", str, int, ttl=_TTL)
STATES = (COUNT, LOG, SEEN, BEST, LAST, RECENT)
ROWS = ValueStateDescriptor("rows", int)
TIMERS = "event"

#: Rewrites begin soon, and both kinds of them happen.
POLICY: Final = ChainPolicy(most_files=8, rewrite_at=4, base_ratio=0.5, small_bytes=12_000)
#: A job with this policy waits for every rewrite as soon as it is begun: the order of calls is fixed.
STEADY: Final = ChainPolicy(most_files=4, rewrite_at=4, base_ratio=0.5, small_bytes=12_000)
#: Deltas of large batches are files, those of small ones travel.
INLINE_BYTES: Final = 5_000

OPERATIONS: Final = (
    "count", "log", "seen", "unsee", "best", "last", "recent", "timer", "untimer", "cut", "clear"
)  # fmt: skip

Row = tuple[str, str, Any]


# -- what happens in a batch ----------------------------------------------------------------------------------


def time_of(batch: int) -> int:
    """Processing time and watermark of a batch."""
    return (batch + 1) * SECOND


def rows_of(seed: int, batch: int) -> list[Row]:
    """(key, operation, argument) of every row of a batch."""
    chance = random.Random(f"{seed}/{batch}")
    rows: list[Row] = []
    for _ in range(chance.choice((0, 6, 25, 60))):
        key = KEYS[min(chance.randrange(len(KEYS)), chance.randrange(len(KEYS)))]
        operation = chance.choice(("count", "seen", *OPERATIONS))
        argument: Any = chance.randrange(100)
        if operation == "log":
            argument = chance.randbytes(chance.choice((2, 2, 400))).hex()
        elif operation in ("timer", "untimer"):
            argument = time_of(batch) + chance.randrange(-1, 6) * SECOND
        rows.append((key, operation, argument))
    return rows


def name_of(argument: int) -> str:
    """A short name made of a number."""
    return f"n{argument % 7}"


class ProfilesFunction:
    """The first operator: what users write."""

    def __init__(self, backend: KeyedStateBackend) -> None:
        self.backend = backend
        self.count, self.log, self.seen, self.best, self.last, self.recent = map(backend.get_partitioned_state, STATES)
        self.timers = backend.get_timer_queue(TIMERS)

    def process(self, row: Row) -> list[str]:
        """One row; what goes out."""
        key, operation, argument = row
        self.backend.set_current_key(key)
        match operation:
            case "count":
                self.count.update((self.count.value() or 0) + argument)
                return [f"{key} {self.count.value()} {len(self.seen)} {self.last.value()}"]
            case "log":
                self.log.add(argument)
            case "cut":
                self.log.update(list(self.log.get())[-2:])
            case "seen":
                self.seen[name_of(argument)] = self.seen.get(name_of(argument), 0) + argument
            case "unsee":
                self.seen.remove(name_of(argument))
            case "best":
                self.best.add(argument)
            case "last":
                self.last.update(name_of(argument))
            case "recent":
                self.recent.put(name_of(argument), argument)
            case "timer":
                self.timers.register(argument, "quiet")
            case "untimer":
                self.timers.delete(argument, "quiet")
            case "clear":
                for state in (self.count, self.log, self.seen, self.best, self.last, self.recent):
                    state.clear()
        return []

    def fire(self, until: int) -> list[str]:
        """All timers up to a time."""
        fired = []
        while (timer := self.timers.poll(until)) is not None:
            self.log.add(f"fired {timer.time}")
            fired.append(f"{timer.key} fired {timer.time}")
        return fired


class Profiles(Work):
    """The first operator: runs `ProfilesFunction`."""

    name = PROFILES
    groups = MAX_PARALLELISM

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def declare(self, backend: KeyedStateBackend) -> None:
        ProfilesFunction(backend)

    def process(self, backend: KeyedStateBackend, task: SlotTask, rows: Sequence[Row]) -> list[Output]:
        function = ProfilesFunction(backend)
        out = [line for row in rows if self.owns(backend, row[0]) for line in function.process(row)]
        assert task.batch.watermark is not None
        out += function.fire(task.batch.watermark)
        return [("out", len(out), "".join(f"{line}\n" for line in out).encode())] if out else []

    def content(self, backend: Any) -> Content:
        now = backend.ttl_clock.processing_time or 0
        function = ProfilesFunction(backend)
        keys = {key for state in STATES for key in backend.get_keys(state.name)}
        assert keys <= set(KEYS)
        found: Content = {}
        for key in KEYS:
            if not self.owns(backend, key):
                continue
            backend.set_current_key(key)
            profile = Profile(
                function.count.value(), list(function.log.get()), dict(function.seen), function.best.get()
            )
            profile.timers = {timer.time for timer in function.timers.timers_of_current_key()}
            content = profile.content(now)
            content |= {name: value for name, value in (("last", function.last.value()),) if value is not None}
            content |= {name: value for name, value in (("recent", dict(function.recent)),) if value}
            if content:
                found[self.name, key] = content
        return found

    def rows(self, batch: int) -> list[Row]:
        return rows_of(self.seed, batch)

    def time(self, batch: int) -> int:
        return time_of(batch)


class Audit(Work):
    """The second operator: counts rows by operation, in one slot."""

    name = AUDIT
    groups = MAX_PARALLELISM
    parallelism = 1

    def declare(self, backend: KeyedStateBackend) -> None:
        backend.get_partitioned_state(ROWS)

    def process(self, backend: KeyedStateBackend, task: SlotTask, rows: Sequence[Row]) -> list[Output]:
        state = backend.get_partitioned_state(ROWS)
        for _, operation, _ in rows:
            if self.owns(backend, operation):
                backend.set_current_key(operation)
                state.update((state.value() or 0) + 1)
        return []

    def content(self, backend: Any) -> Content:
        state = backend.get_partitioned_state(ROWS)
        found: Content = {}
        for key in backend.get_keys("rows"):
            backend.set_current_key(key)
            found[self.name, key] = {"rows": state.value()}
        return found


# -- the oracle -----------------------------------------------------------------------------------------------


@dataclass
class Profile:
    """One key, in plain Python; what has a time to live stands beside its stamp."""

    count: int | None = None
    log: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    best: int | None = None
    last: tuple[str, int] | None = None
    recent: dict[str, tuple[int, int]] = field(default_factory=dict)
    timers: set[int] = field(default_factory=set)

    def content(self, now: int) -> dict[str, Any]:
        """What can be seen."""
        recent = {name: value for name, (value, stamp) in self.recent.items() if stamp + LIFETIME > now}
        found: dict[str, Any] = {"count": self.count, "log": self.log, "seen": self.seen, "best": self.best}
        found |= {"last": self.visible(now), "recent": recent, "timers": sorted(self.timers)}
        return {name: value for name, value in found.items() if value not in (None, [], {})}

    def visible(self, now: int) -> str | None:
        """`last`, unless it has expired."""
        return None if self.last is None or self.last[1] + LIFETIME <= now else self.last[0]


class Model:
    """The whole state, in plain Python."""

    def __init__(self) -> None:
        self.profiles: dict[str, Profile] = {}
        self.rows: dict[str, int] = {}

    def copy(self) -> Model:
        """The same, to change."""
        return copy.deepcopy(self)

    def content(self, now: int) -> Content:
        """What can be seen."""
        content = {(PROFILES, key): _copied(profile.content(now)) for key, profile in self.profiles.items()}
        content |= {(AUDIT, operation): {"rows": rows} for operation, rows in self.rows.items()}
        return {where: what for where, what in content.items() if what}

    def fire(self, until: int) -> list[str]:
        """All timers up to a time; what goes out."""
        out = []
        for key, profile in self.profiles.items():
            for time in sorted(time for time in profile.timers if time <= until):
                profile.timers.remove(time)
                profile.log.append(f"fired {time}")
                out.append(f"{key} fired {time}")
        return out

    def process(self, row: Row, now: int) -> list[str]:
        """One row; what goes out."""
        key, operation, argument = row
        self.rows[operation] = self.rows.get(operation, 0) + 1
        profile = self.profiles.setdefault(key, Profile())
        match operation:
            case "count":
                profile.count = (profile.count or 0) + argument
                return [f"{key} {profile.count} {len(profile.seen)} {profile.visible(now)}"]
            case "log":
                profile.log.append(argument)
            case "cut":
                del profile.log[:-2]
            case "seen":
                profile.seen[name_of(argument)] = profile.seen.get(name_of(argument), 0) + argument
            case "unsee":
                profile.seen.pop(name_of(argument), None)
            case "best":
                profile.best = argument if profile.best is None else max(profile.best, argument)
            case "last":
                profile.last = (name_of(argument), now)
            case "recent":
                profile.recent[name_of(argument)] = (argument, now)
            case "timer":
                profile.timers.add(argument)
            case "untimer":
                profile.timers.discard(argument)
            case "clear":
                self.profiles[key] = Profile(timers=profile.timers)
        return []


class Oracle:
    """What state and output must be after every batch."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._model = Model()
        self._contents: list[Content] = [{}]  # before the first batch, after batch 0, …
        self._outputs: list[list[str]] = []

    def content(self, batch: int | None) -> Content:
        """The state after a batch; None: before the first."""
        while len(self._contents) <= next_of(batch):
            self._run(len(self._outputs))
        return self._contents[next_of(batch)]

    def output(self, batch: int) -> list[str]:
        """The rows that go out of a batch, sorted."""
        self.content(batch)
        return self._outputs[batch]

    def _run(self, batch: int) -> None:
        now = time_of(batch)
        out = [line for row in rows_of(self._seed, batch) for line in self._model.process(row, now)]
        self._outputs.append(sorted(out + self._model.fire(now)))
        self._contents.append(self._model.content(now))


def _copied(content: dict[str, Any]) -> dict[str, Any]:
    return {name: value.copy() if hasattr(value, "copy") else value for name, value in content.items()}


# -- what is stored -------------------------------------------------------------------------------------------


WORKS: Final = (Profiles(0), Audit())  # to read with: any seed has the same states


def newest(storage: Storage) -> Manifest | None:
    """The newest checkpoint there is."""
    numbers = checkpoint_numbers(storage)
    return read_checkpoint(storage, numbers[-1]) if numbers else None


def committed_batch(storage: Storage) -> int | None:
    """The batch that the newest checkpoint is the end of; None before the first."""
    manifest = newest(storage)
    return None if manifest is None or manifest.batch is None else manifest.batch.id


def check_stored(storage: Storage, oracle: Oracle, batches: Sequence[int | None] | None = None) -> int | None:
    """Hold the newest checkpoint to the oracle: it is the end of one of `batches`, whole, and exactly right."""
    manifest = newest(storage)
    if manifest is None:
        assert batches is None or None in batches, f"nothing is stored; expected is the end of one of {batches}"
        return None
    batch = None if manifest.batch is None else manifest.batch.id
    assert batches is None or batch in batches, f"{manifest.describe()}; expected is the end of one of {batches}"
    assert verify(storage, manifest).problems == ()
    assert read_content(storage, manifest, *WORKS) == oracle.content(batch), manifest.describe()
    if batch is not None:
        assert read_output(storage, manifest) == oracle.output(batch), manifest.describe()
    return batch


def next_of(batch: int | None) -> int:
    """The batch that follows."""
    return 0 if batch is None else batch + 1


def profiles_job(store: StateBackend | Storage, *, seed: int, steady: bool = False, **options: Any) -> Job:
    """The job, not yet open. All checkpoints stay, unless told otherwise: tests look at the whole history."""
    defaults = {"parallelism": 2, "inline_bytes": INLINE_BYTES, "policy": STEADY if steady else POLICY}
    defaults |= {"retained": 1_000_000, "clock": ManualClock()}
    return Job(store, Profiles(seed), Audit(), steady=steady, **{**defaults, **options})
