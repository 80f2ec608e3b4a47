"""The fields of a stored type, by their paths: "amount", "customer.mail".

Lists, dicts, tuples and unions on the way are not part of a path, as in `codec.compare`. So a path may lead to several
fields, and exists if one of them does.

Thread safety: pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from emberstate.codec import TypeSchema

#: The new name of a removed field. It stays removed, even if another field gets its name.
GONE = ""


def has_field(schema: TypeSchema | None, path: str) -> bool:
    """Return whether a type has a field at `path`.

    >>> from typing import NamedTuple
    >>> from emberstate.codec import codec_for
    >>> Point = NamedTuple("Point", [("x", int), ("y", int)])
    >>> schema = codec_for(dict[str, list[Point]]).schema
    >>> has_field(schema, "x"), has_field(schema, "z"), has_field(schema, "x.y")
    (True, False, False)
    """
    return schema is not None and path in set(field_paths(schema))


def field_paths(schema: TypeSchema, parent: str = "") -> Iterator[str]:
    """Yield the paths of all fields of a type, at every depth; a path may repeat."""
    for item in schema.items:
        yield from field_paths(item, parent)
    for field in schema.fields:
        path = f"{parent}.{field.name}" if parent else field.name
        yield path
        yield from field_paths(field.type, path)


def forward(path: str, renames: Mapping[str, str]) -> str:
    """Return a path of stored names in the new names of `renames` ({path: new name}).

    >>> forward("customer.mail", {"customer": "client", "customer.mail": "email"})
    'client.email'
    """
    parts = path.split(".")
    return ".".join(renames.get(".".join(parts[: i + 1]), part) for i, part in enumerate(parts))


def backward(path: str, renames: Mapping[str, str]) -> list[str]:
    """Return the stored paths that `path`, in new names, may come from; none if its name was renamed away.

    >>> backward("client.email", {"customer": "client", "customer.mail": "email"})
    ['customer.mail', 'customer.email', 'client.email']
    >>> backward("customer.mail", {"customer": "client"})
    []
    """
    sources = [""]
    for part in path.split("."):
        found = []
        for source in sources:
            found += [old for old, new in renames.items() if new == part and old.rpartition(".")[0] == source]
            same = f"{source}.{part}" if source else part
            if same not in renames:
                found.append(same)
        sources = found
    return sources


def removed_fields(stored: TypeSchema, present: TypeSchema, renames: Mapping[str, str]) -> dict[str, str]:
    """Return the stored fields that the present type lacks, each renamed to `GONE`; not renamed fields, nor those
    inside a removed one."""
    here = set(field_paths(present))
    gone = {path: GONE for path, new in renames.items() if new == GONE}
    for path in field_paths(stored):
        inside = any(path.startswith(f"{outer}.") for outer in gone)
        if path not in renames and not inside and forward(path, renames) not in here:
            gone[path] = GONE
    return gone
