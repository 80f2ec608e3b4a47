# cython: boundscheck=False, wraparound=False
"""The current key of a backend, and the key group it belongs to.

All keys enter here, so their type is checked here: 1, 1.0 and True are never one key, because only one of them is of
the declared type.

Invariants: `position` is the key group's position in the owned range, -1 while no key is set; a rejected key leaves the
context unchanged; a closed context has no key and owns nothing, for good.

Thread safety: one owner thread, at first the one that makes the context; `own` changes it. The context, and so every
state, timer queue and backend around it, rejects any other thread: two threads would corrupt state silently. A forked
child owns nothing: fork copies the locks and half-done changes of the other threads, but not the threads. The system
may reuse the number of an ended thread; a new thread with that number passes for the owner, which is harmless: the two
never run at the same time.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NoReturn

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

from emberstate.errors import LifecycleError, StateDeclarationError
from emberstate.keygroups import KeyGroupRange, KeySchema, check_max_parallelism

if not cython.compiled:  # compiled, it is a C function
    from emberstate.state.thread_number import thread_number

#: Of the keys that come with their group, one in this many is checked.
CHECK_EVERY = 256


class KeyContext:
    """The current key of a backend's states."""

    __slots__ = (
        "__weakref__",
        "closed",
        "grouper",
        "groups",
        "key",
        "key_group_range",
        "key_schema",
        "max_parallelism",
        "normalise",
        "owner",
        "owner_name",
        "position",
        "process",
        "start",
        "unchecked",
    )

    key: Any
    position: int
    key_schema: KeySchema
    key_group_range: KeyGroupRange
    max_parallelism: int
    start: int
    groups: int
    grouper: Callable[[Any], int]
    normalise: Callable[[Any], Any]
    unchecked: int
    closed: bool
    owner: int  # the owner thread's number; 0, which no thread has, in a forked child
    owner_name: str
    process: int

    def __init__(self, key_schema: KeySchema, max_parallelism: int, key_group_range: KeyGroupRange) -> None:
        check_max_parallelism(max_parallelism)
        if len(key_group_range) == 0 or key_group_range.end >= max_parallelism:
            raise StateDeclarationError(
                f"key groups {key_group_range} are not a part of 0 to {max_parallelism - 1}: "
                f"use range_for_slot(max_parallelism, parallelism, slot)",
                option="key_group_range",
            )
        self.key_schema = key_schema
        self.max_parallelism = max_parallelism
        self.key_group_range = key_group_range
        self.start = key_group_range.start
        self.groups = len(key_group_range)
        self.grouper = key_schema.key_grouper(max_parallelism)
        self.normalise = key_schema.normalise
        self.key = None
        self.position = -1
        self.unchecked = 0
        self.closed = False
        self.process = os.getpid()
        self.own()
        _CONTEXTS.add(self)

    # -- whose it is ----------------------------------------------------------------------------------------

    def own(self) -> None:
        """Make the calling thread the owner; the previous owner must not use the backend any more.

        For a backend that one thread makes or restores and another one uses.
        """
        if os.getpid() != self.process:
            self._refuse_process()
        self.owner_name = threading.current_thread().name
        self.owner = thread_number()

    def check_owner(self) -> None:
        """Raise `LifecycleError` unless the calling thread is the owner."""
        if thread_number() != self.owner:
            if os.getpid() != self.process:
                self._refuse_process()
            raise LifecycleError(
                f"state that belongs to thread {self.owner_name!r} ({self.owner}) was used by thread "
                f"{threading.current_thread().name!r} ({thread_number()}). Use it on its own thread "
                f"only, and give other threads values or a snapshot; to hand the whole backend over, call "
                f"backend.context.own() on the new thread.",
                expected=self.owner_name,
                found=threading.current_thread().name,
            )

    def __reduce__(self) -> NoReturn:
        raise LifecycleError(
            "a backend, its timers and its snapshots cannot be pickled or copied: they belong to one process. Was "
            "one caught in a closure that Spark sends elsewhere? Make a backend where it is used.",
            option="__reduce__",
        )

    def _refuse_process(self) -> None:
        raise LifecycleError(
            f"state that belongs to process {self.process} was used by process {os.getpid()}, which was forked "
            f"from it: changes in a child are lost. Make or restore a backend where it is used.",
            expected=self.process,
            found=os.getpid(),
        )

    # -- the key --------------------------------------------------------------------------------------------

    def set_current_key(self, key: Any) -> None:
        """Make `key` the current one; rejects a wrong type, and a key of a group that is not owned."""
        key = self.normalise(key)
        self._move_to(key, self.grouper(key))

    def set_current_key_and_group(self, key: Any, key_group: cython.Py_ssize_t) -> None:
        """As `set_current_key`, for a canonical key whose group the caller knows; checks one key in `CHECK_EVERY`."""
        self.unchecked += 1
        if self.unchecked >= CHECK_EVERY:
            self.unchecked = 0
            self.key_schema.check(key)
            self.check_group(key, key_group)
        self._move_to(key, key_group)

    def clear(self) -> None:
        """Unset the current key: using state raises until the next one is set."""
        self.check_owner()
        self.key = None
        self.position = -1

    def close(self) -> None:
        """Unset the current key for good."""
        self.clear()
        self.closed = True
        self.groups = 0  # rejects every key by the check of the range, which costs an open context nothing

    def check_open(self) -> None:
        """Raise `LifecycleError` if the context was closed, or if the calling thread is not the owner."""
        self.check_owner()
        if self.closed:
            raise LifecycleError("the backend is closed: its state cannot be used any more", found="closed")

    @property
    def key_group(self) -> int:
        """The key group of the current key."""
        self.check_key("key_group")
        return self.start + self.position

    def check_key(self, what: str) -> None:
        """Raise unless there is a current key and the calling thread is the owner; `what` is about to be used."""
        if self.position < 0 or thread_number() != self.owner:
            self.refuse(what)

    def check_still(self, key: Any) -> None:
        """Raise unless `key`, with which an iteration began, is still the current one."""
        self.check_owner()
        if self.position < 0 or not (self.key is key or self.key == key):
            self.check_open()
            raise LifecycleError(
                f"an iteration over state of key {key!r} was continued when that was not the current key any "
                f"more: finish it while the same row or timer is handled, or collect with list() first.",
                key=key,
                expected=key,
            )

    def check_group(self, key: Any, key_group: int) -> None:
        """Raise unless `key_group` is what the key's hash gives."""
        computed = self.grouper(key)
        if computed != key_group:
            raise StateDeclarationError(
                f"key {key!r} came with key group {key_group}, its hash gives {computed} of "
                f"{self.max_parallelism}. Likely causes: another max parallelism or key schema on the "
                f"sending side (here {self.key_schema.type_names}), or a key changed after it was hashed.",
                key=key,
                key_group=key_group,
                expected=computed,
                found=key_group,
            )

    def refuse(self, what: str) -> None:
        """Raise why `what` cannot be used: wrong thread, closed, or no current key."""
        self.check_open()
        raise LifecycleError(
            f"{what!r} was used without a current key. State belongs to a key: use it while a row or timer "
            f"of that key is handled, or call set_current_key() first.",
            option=what,
            expected="a current key",
        )

    def _move_to(self, key: Any, key_group: cython.Py_ssize_t) -> None:
        self.check_owner()
        position: cython.Py_ssize_t = key_group - self.start
        if position < 0 or position >= self.groups:
            self.check_open()
            raise StateDeclarationError(
                f"key {key!r} belongs to key group {key_group}, but {self.key_group_range} is owned here. "
                f"Likely causes: the row was sent to the wrong slot, or the key is not deterministic (it "
                f"hashes differently each time it is computed).",
                key=key,
                key_group=key_group,
            )
        self.key = key
        self.position = position


#: Every context of this process: a forked child, which gets a copy of the owner's number, disowns them.
_CONTEXTS: weakref.WeakSet[KeyContext] = weakref.WeakSet()


def _disown_all() -> None:
    context: KeyContext
    for context in _CONTEXTS:
        context.owner = 0


os.register_at_fork(after_in_child=_disown_all)
