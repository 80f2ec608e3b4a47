"""Makes a savepoint from data, without a job.

    SavepointDraft        describes the savepoint; every writer of a part gets it
    BasePartWriter        writes bases of some key groups, whose rows come in the order of key groups
    DeltaPartWriter       writes deltas of rows of any key group in any order; others may write the same key groups
    commit_draft          makes the files of all parts the savepoint, atomically
    discard_draft         deletes them

Every value, list and user key of a map must be given once. A `BasePartWriter` sees everything of its key groups, so it
rejects duplicates itself; `commit_draft` looks for duplicates among the deltas of several writers.

A part holds at most `MAX_ENTRIES` entries, and one more key group, in memory.

Thread safety: a draft is immutable; a writer belongs to one thread.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from emberstate.checkpoint.commit.savepoint import check_free, publish
from emberstate.checkpoint.files.writer import BaseWriter, write_delta
from emberstate.checkpoint.manifest.catalogue import read_savepoint
from emberstate.checkpoint.manifest.layout import new_id, savepoint_path
from emberstate.checkpoint.manifest.model import (
    MAX_CHAIN_FILES,
    Holder,
    Manifest,
    Operator,
    SlotChain,
    StateFile,
)
from emberstate.checkpoint.manifest.open_files import open_state_file, store_file
from emberstate.checkpoint.manifest.process import this_process
from emberstate.checkpoint.offline.given_once import check_once, given_twice
from emberstate.clock import Clock, SystemClock
from emberstate.errors import CheckpointCollectedError, CorruptionError, StateDeclarationError, StorageError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeyGroupRange, KeySchema, check_max_parallelism
from emberstate.state.descriptors import StateDescriptor
from emberstate.storage.interface import Storage, StorageOutcomeUnknownError

#: Entries that a part holds before it writes them to a file.
MAX_ENTRIES: Final = 500_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SavepointDraft:
    """A savepoint of one operator, while it is written."""

    name: str
    job: str
    operator: str
    key_schema: KeySchema
    max_parallelism: int
    states: tuple[StateDescriptor, ...]
    #: The stamp of all entries of states with a time to live: µs since 1970.
    written_at: int
    #: The prefix of file names.
    attempt: str = dataclasses.field(default_factory=new_id)

    def __post_init__(self) -> None:
        savepoint_path(self.name)
        check_max_parallelism(self.max_parallelism)
        for what, name in (("job", self.job), ("operator", self.operator)):
            if not isinstance(name, str) or not 0 < len(name) <= 200 or not name.isprintable():
                raise StateDeclarationError(
                    f"the name of {what} {name!r:.100} must be printable, of 1 to 200 characters"
                )
        names = [state.name for state in self.states]
        if not names or len(set(names)) != len(names):
            raise StateDeclarationError(f"a savepoint has states, with different names; found {names}")

    @property
    def all_groups(self) -> KeyGroupRange:
        """All key groups."""
        return KeyGroupRange(0, self.max_parallelism - 1)

    def new_backend(self, groups: KeyGroupRange) -> HeapKeyedStateBackend:
        """Return an empty backend with the states."""
        backend = HeapKeyedStateBackend(
            self.key_schema, max_parallelism=self.max_parallelism, key_group_range=groups
        )
        for state in self.states:
            backend.get_internal_state(state)
        backend.ttl_clock.processing_time = backend.ttl_clock.event_time = self.written_at
        return backend


class _PartWriter:
    """The common part of the writers: a backend to fill, and the files written."""

    def __init__(self, storage: Storage, draft: SavepointDraft, groups: KeyGroupRange, max_entries: int) -> None:
        self._storage = storage
        self._draft = draft
        self._groups = groups
        self._max_entries = max_entries
        self._files: list[StateFile] = []
        self._begin()

    def _begin(self) -> None:
        self._backend = self._draft.new_backend(self._groups)
        self._put = {state.name: _putter(self._backend, state) for state in self._draft.states}
        self._entries = 0

    def _add(self, contents: Mapping[str, Any]) -> None:
        for name, content in contents.items():
            repeated = self._put[name](content)
            if repeated is not None:
                raise given_twice(name, self._backend.current_key, *repeated)
            self._entries += 1

    def _store(self, kind: str, groups: KeyGroupRange, parts: list[bytes], seal: str) -> None:
        path = savepoint_path(self._draft.name, f"{self._draft.attempt}-{new_id()}")
        ref = store_file(self._storage, path, parts)
        self._files.append(StateFile(new_id(), kind, (groups.start, groups.end), ref, seal, 0))  # type: ignore[arg-type]


class BasePartWriter(_PartWriter):
    """Writes all state of some key groups, as bases that cover them."""

    def __init__(
        self, storage: Storage, draft: SavepointDraft, groups: KeyGroupRange, max_entries: int = MAX_ENTRIES
    ) -> None:
        super().__init__(storage, draft, groups, max_entries)
        self._last = groups.start

    def add(self, key: Any, contents: Mapping[str, Any]) -> None:
        """Add the contents of a key, by state; keys come in the order of their key groups.

        A value of a value, reducing or aggregating state; a list; a dict.
        """
        schema = self._draft.key_schema
        key = schema.normalise(key)
        group = schema.key_group(key, self._draft.max_parallelism)
        if group > self._last and self._entries >= self._max_entries:
            self._flush(self._last)
        self._last = max(self._last, group)
        self._backend.context.set_current_key_and_group(key, group)
        self._add(contents)

    def finish(self) -> list[StateFile]:
        """Write the rest; return all files of the part."""
        self._flush(self._groups.end)
        return self._files

    def _flush(self, last: int) -> None:
        groups = KeyGroupRange(self._groups.start, last)
        with self._backend.snapshot() as snapshot:
            writer = BaseWriter(self._backend, snapshot, groups)
            parts = list(writer)
        self._store("base", groups, parts, writer.seal)
        self._backend.close()
        if last < self._groups.end:
            self._groups = KeyGroupRange(last + 1, self._groups.end)
            self._begin()


class DeltaPartWriter(_PartWriter):
    """Writes state of any key groups, as deltas; other writers may write the same key groups."""

    def __init__(self, storage: Storage, draft: SavepointDraft, max_entries: int = MAX_ENTRIES) -> None:
        super().__init__(storage, draft, draft.all_groups, max_entries)

    def add(self, key: Any, contents: Mapping[str, Any]) -> None:
        """Add the contents of a key, by state."""
        if self._entries >= self._max_entries:
            self._flush()
            self._begin()
        self._backend.set_current_key(key)
        self._add(contents)

    def finish(self) -> list[StateFile]:
        """Write the rest; return all files of the part, none if nothing was added."""
        self._flush()
        return self._files

    def _begin(self) -> None:
        super()._begin()
        self._empty = self._backend.snapshot()

    def _flush(self) -> None:
        if self._entries:
            written = write_delta(self._backend, self._empty)
            self._store("delta", self._groups, [written.data], written.seal)
        self._empty.release()
        self._backend.close()


def commit_draft(
    storage: Storage, draft: SavepointDraft, files: Sequence[StateFile], *, clock: Clock | None = None
) -> Manifest:
    """Make the files of all parts the savepoint. They are all bases, which cover the key groups, or all deltas.

    Raises:
        StorageExistsError: there is a savepoint of that name.
        StateTypeError: an entry was given twice.
    """
    now = (SystemClock() if clock is None else clock).now_micros()
    chains: list[tuple[tuple[int, int], tuple[StateFile, ...]]]
    if all(file.kind == "base" for file in files) and files:
        chains = [(file.groups, (file,)) for file in sorted(files, key=lambda file: file.groups)]
    else:
        if len(files) > MAX_CHAIN_FILES:
            raise StateDeclarationError(
                f"{len(files)} files were written, a savepoint has at most {MAX_CHAIN_FILES}: write fewer partitions"
            )
        check_once([open_state_file(storage, file) for file in files], draft.key_schema)
        chains = [((0, draft.max_parallelism - 1), tuple(files))]
    slots = tuple(SlotChain(groups, f"{draft.attempt}/{groups[0]}-{groups[1]}", chain) for groups, chain in chains)
    manifest = Manifest(
        job=draft.job,
        id=draft.attempt,
        number=0,
        kind="savepoint",
        writer=Holder(0, *this_process(now), draft.attempt),
        created=now,
        operators=(Operator(draft.operator, draft.key_schema.type_names, draft.max_parallelism, slots),),
    )
    publish(storage, draft.name, manifest)
    return manifest


def begin_draft(storage: Storage, draft: SavepointDraft) -> None:
    """Reject, before anything is written, a storage that cannot hold the savepoint or has one of that name."""
    storage.check_conditional_create()
    check_free(storage, draft.name)


@contextlib.contextmanager
def drafting(storage: Storage, draft: SavepointDraft) -> Iterator[None]:
    """Begin a draft; delete its files if the body fails."""
    begin_draft(storage, draft)
    try:
        yield
    except StorageOutcomeUnknownError:
        raise  # the savepoint may exist: its files stay
    except BaseException:
        with contextlib.suppress(StorageError, CorruptionError):  # report the first error
            discard_draft(storage, draft)
        raise


def discard_draft(storage: Storage, draft: SavepointDraft) -> None:
    """Delete the files of a draft, unless it has become a savepoint all the same."""
    with contextlib.suppress(CheckpointCollectedError):
        if read_savepoint(storage, draft.name).id == draft.attempt:
            return
    folder = savepoint_path(draft.name, "").removesuffix("/")
    beginning = savepoint_path(draft.name, f"{draft.attempt}-")
    storage.delete_all([path for path in storage.list(folder) if path.startswith(beginning)])


# -- parts ----------------------------------------------------------------------------------------------------


def _putter(backend: HeapKeyedStateBackend, descriptor: StateDescriptor) -> Callable[[Any], tuple[Any, ...] | None]:
    """Return a function that sets a state of the current key. It returns None; (user key,) for a duplicate user key, ()
    for another duplicate."""
    state, kind = backend.get_internal_state(descriptor), descriptor.kind

    def put_map(content: Any) -> tuple[Any, ...] | None:
        for user_key, value in content.items():
            if state.contains(user_key):
                return (user_key,)
            state.put(user_key, value)
        return None

    def put_list(content: Any) -> tuple[Any, ...] | None:
        if state.get() is not None:
            return ()
        state.update(list(content))
        return None

    def put_value(content: Any) -> tuple[Any, ...] | None:
        if state.value() is not None:
            return ()
        state.update(content)
        return None

    def put_folded(content: Any) -> tuple[Any, ...] | None:
        if state.get_internal() is not None:
            return ()
        state.update_internal(content)
        return None

    return {"map": put_map, "list": put_list, "value": put_value}.get(kind, put_folded)
