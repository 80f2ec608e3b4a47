"""A Griffe extension for the API reference: examples in docstrings (`>>>`) become code blocks."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object


def fenced(text: str) -> str:
    """The text with a fence around every example; an example ends at an empty line."""
    return re.sub(r"^>>> .*(?:\n.+)*", lambda example: f"```pycon\n{example[0]}\n```", text, flags=re.MULTILINE)


class DoctestFences(Extension):  # type: ignore[misc, unused-ignore]  # where it is not installed
    """Fences the examples of every docstring."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Called by Griffe, for each module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
