"""From acknowledgements to the next manifest: adds what every slot prepared to the chains, and joins the contents of
the acknowledgements in one bundle.

Thread safety: pure, apart from `Bundle`, which belongs to one commit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from emberstate.checkpoint.commit.messages import Acknowledgement, SlotTask
from emberstate.checkpoint.commit.rewrite_orders import RewriteOrders
from emberstate.checkpoint.manifest.chain import adopt
from emberstate.checkpoint.manifest.invariants import check_ref
from emberstate.checkpoint.manifest.layout import bundle_path
from emberstate.checkpoint.manifest.model import FileRef, Manifest, Operator, Output, SlotChain, StateFile
from emberstate.errors import CorruptionError, LifecycleError
from emberstate.storage.checksums import checksum

log = logging.getLogger("emberstate.checkpoint")


class Bundle:
    """Small contents of all slots, in one file of the manifest's directory."""

    def __init__(self, number: int) -> None:
        self.path = bundle_path(number)
        self.parts: list[bytes] = []
        self._size = 0

    def ref(self, content: bytes | None, stored: FileRef | None) -> FileRef:
        """Return a reference to a content, which is added to the bundle, or to a file that a slot has stored."""
        if content is None:
            if stored is None:
                raise CorruptionError("an acknowledgement has neither a content nor a reference to one")
            check_ref(stored)
            return stored
        offset = self._size
        self.parts.append(content)
        self._size += len(content)
        return FileRef(self.path, len(content), checksum(content), offset)


class NextState:
    """The operators and outputs of the next checkpoint."""

    def __init__(
        self,
        latest: Manifest,
        tasks: Sequence[SlotTask],
        acknowledgements: Sequence[Acknowledgement],
        orders: RewriteOrders,
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
            Output(
                operator, output.name, slot, output.rows, bundle.ref(output.content, output.place), output.format
            )
            for (operator, slot), acknowledgement in self._acknowledged.items()
            for output in acknowledgement.outputs
        )

    def _slots(self, operator: Operator) -> list[SlotChain]:
        return [self._next(chain, self._acknowledged[operator.name, slot]) for slot, chain in enumerate(operator.slots)]

    def _next(self, chain: SlotChain, acknowledgement: Acknowledgement) -> SlotChain:
        chain = self._rewritten(chain, acknowledgement)
        files, written = chain.files, acknowledgement.state
        if written is not None:
            ref = self._bundle.ref(written.content, written.place)
            file = StateFile(written.id, written.kind, chain.groups, ref, written.seal, acknowledgement.number)
            # A base instead of a delta is the whole state and replaces the chain.
            files = (file,) if written.kind == "base" else (*files, file)
        return msgspec.structs.replace(chain, attempt=acknowledgement.attempt, files=files)

    def _rewritten(self, chain: SlotChain, acknowledgement: Acknowledgement) -> SlotChain:
        rewrite = acknowledgement.rewrite
        if rewrite is None:
            return chain
        order = self._orders.get(acknowledgement.operator, acknowledgement.slot)
        # Files of a rewrite that another incarnation ordered may have been collected.
        ordered = order is not None and order.id == rewrite.order
        result = adopt(chain, rewrite) if ordered else "this process did not order it"
        if isinstance(result, str):
            self.rejected += 1
            log.warning(
                "rejected a rewrite of slot %d of operator %r: %s; the chain stays as it was",
                acknowledgement.slot, acknowledgement.operator, result,
            )  # fmt: skip
            return chain
        self.adopted += 1
        return result


def _matched(
    tasks: Sequence[SlotTask], acknowledgements: Sequence[Acknowledgement]
) -> dict[tuple[str, int], Acknowledgement]:
    """Return one acknowledgement for each task, of an attempt that started where the task does."""
    found: dict[tuple[str, int], Acknowledgement] = {}
    for acknowledgement in acknowledgements:
        where = (acknowledgement.operator, acknowledgement.slot)
        if where in found:
            raise LifecycleError(
                f"slot {where[1]} of operator {where[0]!r} was acknowledged twice. Pass only the winner.",
                operator=where[0],
                slot=where[1],
                expected=1,
                found=2,
            )
        found[where] = acknowledgement
    matched = {}
    for task in tasks:
        where = (task.operator, task.slot)
        winner = found.pop(where, None)
        if winner is None:
            raise LifecycleError(
                f"slot {task.slot} of operator {task.operator!r} was not acknowledged: nothing is committed",
                operator=task.operator,
                slot=task.slot,
                expected=1,
                found=0,
            )
        if (winner.number, winner.started_from) != (task.number, task.chain.attempt):
            raise LifecycleError(
                f"slot {task.slot} of operator {task.operator!r} acknowledged another transaction: expected checkpoint "
                f"{task.number} from attempt {task.chain.attempt!r}, got {winner.number} from {winner.started_from!r}. "
                f"Nothing is committed.",
                operator=task.operator,
                slot=task.slot,
                checkpoint=task.number,
                expected=(task.number, task.chain.attempt),
                found=(winner.number, winner.started_from),
            )
        matched[where] = winner
    if found:
        outside = sorted(found)
        what = f"acknowledgements of slots outside this transaction: {outside}"
        raise LifecycleError(what, operator=outside[0][0], slot=outside[0][1], expected=0, found=1)
    return matched
