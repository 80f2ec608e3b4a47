"""`FinishingFunction`: a function that emits at the end of a transaction, for keys that rows or timers have named.

The library's own functions use it to emit once what several rows of a batch have changed.

Thread safety: one thread, that of the operator.
"""

from __future__ import annotations

from typing import Any

from emberstate.runtime.functions.context import FunctionContext
from emberstate.runtime.functions.function import KeyedProcessFunction, Outputs


class FinishingFunction(KeyedProcessFunction):
    """Has a second look at some keys, after all rows and timers of a transaction."""

    def unfinished(self) -> list[Any]:
        """The keys that want a call of `finish_key`, each once."""
        raise NotImplementedError

    def finish_key(self, key: Any, ctx: FunctionContext) -> Outputs:
        """Emit for `key`, which is current, and forget that it was unfinished. It registers no timers."""
        raise NotImplementedError
