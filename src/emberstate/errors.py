"""The exceptions of Emberstate: one small tree.

Every class is also the nearest built-in, so that code which knows nothing of Emberstate catches it too.
A message says what happened, where, what was expected and found, and what to do next. What it says of the place is in
attributes, too: `error.state`, `error.batch` and so on, None where it does not apply.

>>> error = CorruptionError("state/000001/ab.arrow: its checksum is wrong", path="state/000001/ab.arrow")
>>> error.path, error.state
('state/000001/ab.arrow', None)
"""

from __future__ import annotations

from typing import Any, TypedDict, Unpack


class Place(TypedDict, total=False):
    """Where it happened."""

    path: str | None
    operator: str | None
    slot: int | None
    state: str | None
    key: Any
    key_group: int | None
    column: str | None
    batch: int | None
    checkpoint: int | None


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
    batch: int | None = None
    checkpoint: int | None = None

    def __init__(self, *args: object, **place: Unpack[Place]) -> None:
        super().__init__(*args)
        vars(self).update(place)  # travels with a pickle


class StateTypeError(EmberstateError, TypeError):
    """A value or key is not of the type that its state declares.

    Operator action: convert the value in the function, or change the declared type and migrate.
    """


class StateDeclarationError(EmberstateError, ValueError):
    """A state, key or type was declared in a way that cannot work.

    Operator action: change the declaration; the message names what to use instead.
    """


class KeyGroupError(EmberstateError, ValueError):
    """A key belongs to a key group that is not owned here, or a range makes no sense.

    Operator action: make the key deterministic, or route the row to the slot that owns its group.
    """


class KeyContextError(EmberstateError, RuntimeError):
    """State was used without a current key, after close, or from where it must not be.

    Operator action: use state only while its function handles a row or a timer.
    """


class LifecycleError(EmberstateError, RuntimeError):
    """An operator was asked for something before it was opened, outside a transaction, or after close.

    Operator action: none at run time; whoever drives the operator must open, begin and end in that order.
    """


class UserFunctionError(EmberstateError, RuntimeError):
    """The user's function raised; the message has operator, key and row, `__cause__` is its own exception unless that
    was in a slot. Or it did not do the same with broadcast state in all slots. Or a sink raised; the message has the
    sink and its batch.

    Operator action: fix the function or the input; the transaction was not committed and can be run again. Fix the
    sink; the batch was committed and is delivered again.
    """


class ProgramError(EmberstateError, ImportError):
    """A slot cannot load the program that it is to run: a module is missing there, or is another version.

    Operator action: ship the module with spark-submit --py-files or sparkContext.addPyFile, and start again.
    """


class SlotDiedError(EmberstateError, ConnectionError):
    """A slot's process ended while it was needed, or could not be started.

    Operator action: none if Spark's retry of the task succeeds, nothing is lost; else look for what ends the
    process: memory (size spark.executor.memoryOverhead), or a crash in a library, in the executor's stderr log.
    """


class SlotRefusedError(EmberstateError, PermissionError):
    """A slot does not serve a request: a newer attempt has taken over, or it does not know who asks.

    Operator action: none for an attempt that is not wanted any more; else check for two applications or users
    that use the same names.
    """


class RowTypeError(EmberstateError, TypeError):
    """A row that comes in or goes out does not fit the schema that was declared for it.

    Operator action: convert the value in the function, or change the schema; the message names the column.
    """


class WatermarkError(EmberstateError, ValueError):
    """A watermark would go back: timers that it lies behind have fired already.

    Operator action: none at run time; check what computes the watermark.
    """


class ReadOnlyStateError(EmberstateError, TypeError):
    """A mutator was called on read-only state.

    Operator action: change state in a keyed function; checkpoints and snapshots are for reading.
    """


class SnapshotReleasedError(EmberstateError, RuntimeError):
    """A snapshot was read, or rolled back to, after it was released.

    Operator action: keep the snapshot open (it is a context manager) for as long as it is read.
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
    """A read, write, listing or deletion in checkpoint storage failed.

    Operator action: see the path and the system's own message; the last committed checkpoint is untouched.
    """


class LocalStateError(EmberstateError, OSError):
    """The local files of a RocksDB backend could not be written or read: a full or broken disk.

    Operator action: make room, or name another local directory; a restart restores from the last checkpoint,
    which is untouched.
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


class StateTooLargeError(EmberstateError, OverflowError):
    """A checkpoint kept in memory would exceed its size limit.

    Operator action: use FsStateBackend, or raise the limit.
    """


class JavaNotFoundError(EmberstateError, EnvironmentError):
    """There is no Java that Spark could run on, or JAVA_HOME names none.

    Operator action: install Java 17 or later, or the extra `emberstate[java]`; the message says how.
    """
