"""`SlotProgram`: what a slot runs, as the driver sends it to the slot processes.

The driver pickles it (cloudpickle) once per start. Requests name it by its digest; a slot that does not have it
asks for it.

Thread safety: immutable.
"""

from __future__ import annotations

import dataclasses
import hashlib

from emberstate.checkpoint.chain import ChainPolicy
from emberstate.checkpoint.state_backend import StateBackend
from emberstate.runtime.job_spec import JobSpec


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SlotProgram:
    """A job of one operator, and how its slots run it."""

    job: JobSpec
    state_backend: StateBackend
    policy: ChainPolicy
    #: Rows whose key has a null are dropped and counted ("null_keys"); else they are refused.
    drop_null_keys: bool
    #: How long a slot lives without a request.
    idle_seconds: float


def program_digest(program: bytes) -> str:
    """The name of a pickled program.

    >>> program_digest(b"")[:16]
    'e3b0c44298fc1c14'
    """
    return hashlib.sha256(program).hexdigest()
