"""Something that runs on a thread of its own, and whose error is not lost."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.patience import PATIENCE


class Thread:
    """Runs a function; `join` raises what it raised, unless that was expected."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.result: object = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(function,), daemon=True)
        self._thread.start()

    def _run(self, function: Callable[[], object]) -> None:
        try:
            self.result = function()
        except BaseException as error:
            self.error = error

    @property
    def is_alive(self) -> bool:
        """Whether it still runs."""
        return self._thread.is_alive()

    def join(self, *expected: type[BaseException]) -> object:
        """Wait for the end; the result."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "it hangs"
        if self.error is not None and not isinstance(self.error, expected):
            raise self.error
        return self.result
