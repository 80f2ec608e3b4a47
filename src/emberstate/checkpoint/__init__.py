"""Checkpoints: how state becomes files, a batch is committed, a job restores, and checkpoints are read.

A row's way out: `files` (a delta) -> `manifest` (names the files) -> `commit`. The way back: `manifest` -> `files`
-> `restore`. `read` reads checkpoints beside a running job, `offline` makes and rewrites savepoints, `backends` has the
state backends that a user chooses from. A room imports only those below it: files, manifest, restore, then commit and
read, then offline.
"""

from typing import TYPE_CHECKING

from emberstate._exports import exported

if TYPE_CHECKING:
    from emberstate.checkpoint.backends import FsStateBackend, MemoryStateBackend, RocksDBStateBackend, StateBackend
    from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
    from emberstate.checkpoint.commit.savepoint import delete_savepoint
    from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, savepoint_names
    from emberstate.checkpoint.manifest.chain import ChainPolicy
    from emberstate.checkpoint.manifest.model import Manifest
    from emberstate.checkpoint.read.change_feed import ChangeFeed
    from emberstate.checkpoint.read.read_state import read_changes, read_state
    from emberstate.checkpoint.read.reader import CheckpointReader
    from emberstate.checkpoint.restore.choices import RestoreChoices
    from emberstate.checkpoint.restore.operators import OperatorSpec
    from emberstate.checkpoint.restore.verdict import RestoreVerdict

__all__ = [
    "ChainPolicy",
    "ChangeFeed",
    "CheckpointCoordinator",
    "CheckpointReader",
    "FsStateBackend",
    "Manifest",
    "MemoryStateBackend",
    "OperatorSpec",
    "RestoreChoices",
    "RestoreVerdict",
    "RocksDBStateBackend",
    "StateBackend",
    "checkpoint_numbers",
    "delete_savepoint",
    "read_changes",
    "read_checkpoint",
    "read_state",
    "savepoint_names",
]

if not TYPE_CHECKING:  # a type checker would accept any name
    __getattr__ = exported(
        __name__,
        {
            "backends": ["FsStateBackend", "MemoryStateBackend", "RocksDBStateBackend", "StateBackend"],
            "commit.coordinator": ["CheckpointCoordinator"],
            "commit.savepoint": ["delete_savepoint"],
            "manifest.catalogue": ["checkpoint_numbers", "read_checkpoint", "savepoint_names"],
            "manifest.chain": ["ChainPolicy"],
            "manifest.model": ["Manifest"],
            "read.change_feed": ["ChangeFeed"],
            "read.read_state": ["read_changes", "read_state"],
            "read.reader": ["CheckpointReader"],
            "restore.choices": ["RestoreChoices"],
            "restore.operators": ["OperatorSpec"],
            "restore.verdict": ["RestoreVerdict"],
        },
    )
