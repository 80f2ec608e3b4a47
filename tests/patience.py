"""How long a test waits for what must come before it says that it hangs."""

from __future__ import annotations

from typing import Final

#: Seconds. Long enough for any machine under any load; nothing is asserted of it.
PATIENCE: Final = 900.0
