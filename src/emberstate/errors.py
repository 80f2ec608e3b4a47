"""The exceptions of Emberstate: one small tree, a class for each thing that a caller or an operator does differently.

Every class is also the nearest built-in, so that code which knows nothing of Emberstate catches it too.
A message says what happened, where, what was expected and found, and what to do next. That is in attributes, too:
`error.state`, `error.batch` and so on, None where it does not apply. Attributes travel with a pickle, and from a slot
to the driver. `emberstate.storage` adds a class for those who write: `StorageOutcomeUnknownError`.

>>> error = CorruptionError("state/000001/ab.arrow: its checksum is wrong", path="state/000001/ab.arrow")
>>> error.path, error.state
('state/000001/ab.arrow', None)
"""

from __future__ import annotations

from typing import Any, Self, TypedDict, Unpack, cast


class Place(TypedDict, total=False):
    """Where it happened, and what differs there."""

    path: str | None
    operator: str | None
    slot: int | None
    state: str | None
    key: Any
    key_group: int | None
    column: str | None
    field: str | None
    batch: int | None
    checkpoint: int | None
    option: str | None
    expected: Any
    found: Any


class EmberstateError(Exception):
    """Root of everything Emberstate raises on purpose."""

    #: A file of the location, or a local one.
    path: str | None = None
    operator: str | None = None
    slot: int | None = None
    state: str | None = None
    key: Any = None
    key_group: int | None = None
    column: str | None = None
    #: The place within a value, such as `$['items'][0]`, or within a type.
    field: str | None = None
    batch: int | None = None
    checkpoint: int | None = None
    #: The argument, setting or method at fault.
    option: str | None = None
    #: What is allowed there, and what is there instead; an object of the user's as text.
    expected: Any = None
    found: Any = None

    def __init__(self, *args: object, **place: Unpack[Place]) -> None:
        super().__init__(*args)
        vars(self).update(place)  # travels with a pickle

    @property
    def place(self) -> Place:
        """Those attributes that are known."""
        found = {name: getattr(self, name) for name in Place.__annotations__}
        return cast(Place, {name: value for name, value in found.items() if value is not None})

    def located(self, **place: Unpack[Place]) -> Self:
        """Itself, with those attributes filled in that are not known yet."""
        vars(self).update(place | self.place)
        return self

    def reworded(self, text: str) -> Self:
        """An error of the same class and place with another text; an `OSError` keeps its number."""
        number = self.errno if isinstance(self, OSError) else None
        return type(self)(text, **self.place) if number is None else type(self)(number, text, **self.place)


class StateTypeError(EmberstateError, TypeError):
    """A value or key is not of the type that its state declares, or read-only state was to be changed.

    Operator action: convert the value in the function, or change the declared type and migrate. Change state in a
    keyed function, through the state itself.
    """


class RowTypeError(EmberstateError, TypeError):
    """A row that comes in or goes out does not fit the schema that was declared for it.

    Operator action: convert the value in the function, or change the schema; `column` names the column.
    """


class StateDeclarationError(EmberstateError, ValueError):
    """A state, key, type, range or option was declared in a way that cannot work. With `key_group`: a key belongs to a
    key group that is not owned here.

    Operator action: change the declaration; the message names what to use instead. Make the key deterministic.
    """


class LifecycleError(EmberstateError, RuntimeError):
    """Something was used at the wrong moment or from the wrong place: state without a current key or from another
    thread, anything after close, a snapshot after its release, a batch of a stopped query, a watermark that goes back.

    Operator action: none at run time; use state only while its function handles a row or a timer, and open, begin, end
    and close in that order.
    """


class UserFunctionError(EmberstateError, RuntimeError):
    """The user's function raised; the message has operator, key and row, `__cause__` is its own exception unless that
    was in a slot. Or it did not do the same with broadcast state in all slots. Or a sink raised; the message has the
    sink and its batch.

    Operator action: fix the function or the input; the transaction was not committed and can be run again. Fix the
    sink; the batch was committed and is delivered again.
    """


class SinkError(EmberstateError, RuntimeError):
    """A sink cannot deliver to its target: the target cannot be reached or written, is of another form, or belongs to
    another job. `option` names the argument at fault.

    Operator action: do what the message says. At the start nothing was written; later, the batch is committed and is
    delivered when the query is started again.
    """


class InstallationError(EmberstateError, ImportError):
    """Something that the program needs is missing on a machine, or is another version there: a module in a slot, Java
    on the driver, an extra of emberstate.

    Operator action: ship the module with spark-submit --py-files or sparkContext.addPyFile; install Java 17 or later,
    or the extra `emberstate[java]`. Start again.
    """


class SlotError(EmberstateError, ConnectionError):
    """A slot's process ended while it was needed, could not be started, or rejects a request: a newer attempt has taken
    over, or the caller is not of this application.

    Operator action: none if Spark's retry of the task succeeds, nothing is lost; else look for what ends the
    process: memory (size spark.executor.memoryOverhead), or a crash in a library, in the executor's stderr log. For a
    rejected caller, check for two applications or users that use the same names.
    """


class CodecError(EmberstateError, ValueError):
    """Bytes could not be decoded as the type they should hold, or a value could not be encoded.

    Operator action: see the path in the message; if bytes came from storage, verify the checkpoint.
    """


class InvariantError(EmberstateError, AssertionError):
    """A data structure found itself broken: a bug in Emberstate, never a user's mistake.

    Operator action: report it with the message; restore from the last checkpoint.
    """


class StorageError(EmberstateError, OSError):
    """A read, write, listing or deletion failed in checkpoint storage, or in the local files of a RocksDB backend. Or a
    checkpoint kept in memory would exceed its size limit.

    Operator action: see `path` and the system's own message: network, rights, room; the last committed checkpoint is
    untouched, and a restart restores from it. For state too large for memory use FsStateBackend, or raise the limit.
    """


class StorageExistsError(StorageError, FileExistsError):
    """A file that was to be created is there already, and was not overwritten.

    Operator action: none in itself; of two writers of one name, this one came second.
    """


class StorageNotFoundError(StorageError, FileNotFoundError):
    """A file is not there.

    Operator action: check the checkpoint's location; if a manifest names the file, verify the checkpoint.
    """


class CorruptionError(EmberstateError, ValueError):
    """Stored bytes are not what was written: a checksum, size, structure or version does not fit.

    Operator action: restore an older checkpoint or a savepoint; the message names file and place.
    """


class FencedError(EmberstateError, RuntimeError):
    """Another process has taken over this checkpoint directory; this one may not commit any more.

    Operator action: stop this process, or the other one if it was started by mistake (the message names it).
    """


class RestoreRefusedError(EmberstateError, ValueError):
    """A checkpoint cannot be restored faithfully into what the program declares.

    Operator action: follow the verdict in the message (rename, default, drop_states, keep_states, rewrite).
    """


class CheckpointCollectedError(EmberstateError, LookupError):
    """A checkpoint that was open for reading has been collected, or was never there.

    Operator action: open a newer one, or pin it while it is read.
    """
