"""Converts keys from text by their schema."""

from __future__ import annotations

from typing import Any

import click

from emberstate.codec.key_text import key_of_text
from emberstate.errors import StateDeclarationError
from emberstate.keygroups import KeySchema


def parse_key(text: str, schema: KeySchema) -> Any:
    """Return the key that a user typed; see `key_of_text`."""
    try:
        return key_of_text(text, schema)
    except StateDeclarationError as error:
        raise click.BadParameter(str(error), param_hint="KEY") from None
