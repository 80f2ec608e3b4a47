"""From acknowledgements to the next manifest: what every slot prepared takes its place in the chains, and what
travelled inside the acknowledgements is put together in one bundle.

Thread safety: pure, apart from `Bundle`, which belongs to the commit that makes it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import msgspec

from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.manifest.chain import RewriteOrder, adopt
from emberstate.checkpoint.manifest.invariants import check_ref
from emberstate.checkpoint.manifest.layout import bundle_path
from emberstate.checkpoint.manifest.model import FileRef, Manifest, Operator, Output, SlotChain, StateFile
from emberstate.errors import CorruptionError, LifecycleError
from emberstate.storage.checksums import checksum

log = logging.getLogger("emberstate.checkpoint")


class Bundle:
    """Small contents of all slots, in one file of the manifest's own directory."""

    def __init__(self, number: int) -> None:
        self.path = bundle_path(number)
        self.parts: list[bytes] = []
        self._size = 0

    def ref(self, content: bytes | None, place: FileRef | None) -> FileRef:
        """Where a content stands: here from now on, if it travelled."""
        if content is None:
            if place is None:
                raise CorruptionError("an acknowledgement names neither a content nor the place of one")
            check_ref(place)
            return place
        offset = self._size
        self.parts.append(content)
        self._size += len(content)
        return FileRef(self.path, len(content), checksum(content), offset)


class NextState:
    """The operators and outputs of the checkpoint that acknowledgements make."""

    def __init__(
        self,
        latest: Manifest,
        tasks: Sequence[SlotTask],
        acknowledgements: Sequence[Acknowledgement],
        orders: Mapping[tuple[str, int], RewriteOrder],
        bundle: Bundle,
    ) -> None:
        self.adopted = self.rejected = 0
        self._bundle = bundle
        self._orders = orders
        self._acknowledged = _matched(tasks, acknowledgements)
        self.operators = tuple(
            msgspec.structs.replace(operator, slots=tuple(self._slots(operator))) for operator in latest.operators
        )
        self.outputs = tuple(
            Output(operator, output.name, slot, output.rows, bundle.ref(output.content, output.place))
            for (operator, slot), acknowledgement in self._acknowledged.items()
            for output in acknowledgement.outputs
        )

    def _slots(self, operator: Operator) -> list[SlotChain]:
        return [
            self._next(chain, self._acknowledged[operator.name, slot]) for slot, chain in enumerate(operator.slots)
        ]

    def _next(self, chain: SlotChain, acknowledgement: Acknowledgement) -> SlotChain:
        chain = self._rewritten(chain, acknowledgement)
        files, written = chain.files, acknowledgement.state
        if written is not None:
            place = self._bundle.ref(written.content, written.place)
            file = StateFile(written.id, written.kind, chain.groups, place, written.seal, acknowledgement.number)
            # A base in the place of a delta is the whole state: nothing before it counts any more.
            files = (file,) if written.kind == "base" else (*files, file)
        return msgspec.structs.replace(chain, attempt=acknowledgement.attempt, files=files)

    def _rewritten(self, chain: SlotChain, acknowledgement: Acknowledgement) -> SlotChain:
        rewrite = acknowledgement.rewrite
        if rewrite is None:
            return chain
        order = self._orders.get((acknowledgement.operator, acknowledgement.slot))
        # What another incarnation ordered may have been collected already.
        result = adopt(chain, rewrite) if order is not None and order.id == rewrite.order else "nobody here ordered it"
        if isinstance(result, str):
            self.rejected += 1
            log.warning(
                "a rewrite of slot %d of operator %r is not taken: %s; the chain stays as it was",
                acknowledgement.slot, acknowledgement.operator, result,
            )  # fmt: skip
            return chain
        self.adopted += 1
        return result


def _matched(
    tasks: Sequence[SlotTask], acknowledgements: Sequence[Acknowledgement]
) -> dict[tuple[str, int], Acknowledgement]:
    """One acknowledgement for each task, of an attempt that started where the task does."""
    found: dict[tuple[str, int], Acknowledgement] = {}
    for acknowledgement in acknowledgements:
        where = (acknowledgement.operator, acknowledgement.slot)
        if where in found:
            raise LifecycleError(
                f"slot {where[1]} of operator {where[0]!r} was acknowledged twice: hand in the winner",
                operator=where[0],
                slot=where[1],
            )
        found[where] = acknowledgement
    matched = {}
    for task in tasks:
        where = (task.operator, task.slot)
        winner = found.pop(where, None)
        if winner is None:
            raise LifecycleError(
                f"slot {task.slot} of operator {task.operator!r} was not acknowledged: nothing commits",
                operator=task.operator,
                slot=task.slot,
            )
        if (winner.number, winner.started_from) != (task.number, task.chain.attempt):
            raise LifecycleError(
                f"slot {task.slot} of operator {task.operator!r} acknowledged checkpoint {winner.number} from attempt "
                f"{winner.started_from!r}; this is checkpoint {task.number} from {task.chain.attempt!r}: it is of "
                f"another transaction, and nothing is committed"
            )
        matched[where] = winner
    if found:
        raise LifecycleError(f"slots that are none of this transaction's were acknowledged: {sorted(found)}")
    return matched
