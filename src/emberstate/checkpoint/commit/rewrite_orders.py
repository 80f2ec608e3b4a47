"""`RewriteOrders`: which slots were ordered to rewrite their chains, and have not finished.

Thread safety: the coordinator's thread.
"""

from __future__ import annotations

from collections.abc import Sequence

from emberstate.checkpoint.commit.messages import Acknowledgement
from emberstate.checkpoint.manifest.chain import ChainPolicy, RewriteOrder, plan_rewrite
from emberstate.checkpoint.manifest.model import SlotChain


class RewriteOrders:
    """The orders in force, at most one per slot."""

    def __init__(self, policy: ChainPolicy) -> None:
        self._policy = policy
        self._orders: dict[tuple[str, int], RewriteOrder] = {}

    @property
    def ids(self) -> frozenset[str]:
        """The ids of the orders: files whose names have them may be unfinished."""
        return frozenset(order.id for order in self._orders.values())

    def order(self, operator: str, slot: int, chain: SlotChain, number: int) -> RewriteOrder | None:
        """Return the slot's order: the one in force, or a new one if its chain in checkpoint `number` is long."""
        if (operator, slot) not in self._orders:
            order = plan_rewrite(chain, number, self._policy)
            if order is None:
                return None
            self._orders[operator, slot] = order
        return self._orders[operator, slot]

    def get(self, operator: str, slot: int) -> RewriteOrder | None:
        """Return the slot's order in force."""
        return self._orders.get((operator, slot))

    def committed(self, acknowledgements: Sequence[Acknowledgement]) -> None:
        """End the orders that a slot has just fulfilled, or is not fulfilling; another may follow."""
        for acknowledgement in acknowledgements:
            where = (acknowledgement.operator, acknowledgement.slot)
            order = self._orders.get(where)
            if order is not None and (acknowledgement.rewriting != order.id or acknowledgement.rewrite is not None):
                del self._orders[where]
