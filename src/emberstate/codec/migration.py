"""Carries out a plan of `compatibility`: bytes of an older schema to values of the present type.

Bytes are decoded under the writer's schema, in C and fully validated, and then rebuilt part by part as the
present classes. Every result passes the deep check of the present type before it is returned.

Thread-safety: decoders are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from emberstate.codec.base import Codec
from emberstate.codec.compatibility import Refusal, Step, plan
from emberstate.codec.nodes import Field
from emberstate.codec.type_schema import TypeSchema
from emberstate.codec.wire import Shape, shape_of
from emberstate.errors import CodecError, EmberstateError, StateDeclarationError

Convert = Callable[[Any], Any]


def decoder_for(
    stored: TypeSchema, codec: Codec[Any], renames: Mapping[str, str] | None = None
) -> Callable[[bytes], Any]:
    """A decoder of bytes written under `stored`, to values of the present type.

    StateDeclarationError if the verdict of `compare` is "refused". The decoder raises CodecError only.

    >>> from typing import NamedTuple
    >>> from emberstate.codec import codec_for
    >>> Old = NamedTuple("Old", [("low", int), ("high", int)])
    >>> New = NamedTuple("New", [("high", int), ("low", int)])
    >>> decode = decoder_for(codec_for(Old).schema, codec_for(New))
    >>> decode(codec_for(Old).encode(Old(low=1, high=2)))
    New(high=2, low=1)
    """
    try:
        verdict, step = plan(stored, codec, renames or {})
    except Refusal as refusal:
        raise StateDeclarationError(
            f"stored state cannot be read: {refusal.reason}; {refusal.what_to_do}"
        ) from None
    if step is None or verdict.kind == "compatible":
        return codec.decode
    try:
        shape = shape_of(step.stored)
        decoder = msgspec.msgpack.Decoder(shape.annotation)
    except Exception as error:
        raise CodecError(f"the stored type schema describes no type ({error})") from None
    convert = _converter(step, shape)

    def decode(data: bytes) -> Any:
        try:
            value = convert(decoder.decode(data))
            codec.check_deep(value)
        except (CodecError, MemoryError):
            raise
        except Exception as error:
            field = error.field if isinstance(error, EmberstateError) else None
            raise CodecError(f"the bytes do not hold {stored.label}: {error}", field=field) from None
        return value

    return decode


def _converter(step: Step, shape: Shape) -> Convert:
    kind = step.stored.kind
    if kind == "union":
        return _union(step, shape)
    if kind == "enum":
        assert step.node.cls is not None
        return dict(step.node.cls.__members__).__getitem__
    if step.sources or step.node.fields or step.stored.fields:
        return _record(step, shape)
    items = [_converter(part, part_shape) for part, part_shape in zip(step.items, shape.items, strict=True)]
    if not items:
        return _same
    first = items[0]
    if kind == "dict":
        return _dict(first, items[1], pairs=not step.stored.items[0].sortable)
    if kind == "tuple":
        return lambda v: tuple([convert(part) for convert, part in zip(items, v, strict=True)])
    make = {"list": list, "set": set, "frozenset": frozenset, "vartuple": tuple}[kind]
    return lambda v: make([first(part) for part in v])


def _same(value: Any) -> Any:
    return value


def _dict(key: Convert, value: Convert, *, pairs: bool) -> Convert:
    if pairs:
        return lambda v: {key(k): value(x) for k, x in v}
    return lambda v: {key(k): value(x) for k, x in v.items()}


def _union(step: Step, shape: Shape) -> Convert:
    converters: dict[Any, Convert] = {}
    for part, part_shape in zip(step.items, shape.items, strict=True):
        convert = _converter(part, part_shape)
        classes = part.stored.classes if part_shape.cls is None else (part_shape.cls,)
        converters.update(dict.fromkeys(classes, convert))
    return lambda v: converters[type(v)](v)


def _record(step: Step, shape: Shape) -> Convert:
    """Rebuilds a record: kept fields converted, added ones from their defaults, removed ones left out."""
    node, cls = step.node, step.node.cls
    reads: list[tuple[Field, Any, Convert | None]] = []
    for field, index, part in step.sources:
        if index is None or part is None:
            reads.append((field, None, None))
            continue
        place = index if node.kind == "namedtuple" else step.stored.fields[index].name
        reads.append((field, place, _converter(part, shape.fields[index])))

    def values(v: Any, get: Callable[[Any, Any], Any]) -> list[tuple[str, Any]]:
        return [
            (field.name, _default(field) if convert is None else convert(get(v, place)))
            for field, place, convert in reads
        ]

    if node.kind == "typeddict":
        return lambda v: {
            field.name: convert(v[place])
            for field, place, convert in reads
            if convert is not None and place in v
        }
    assert cls is not None
    if node.kind == "namedtuple":
        return lambda v: tuple.__new__(cls, [value for _, value in values(v, lambda o, i: o[i])])
    if node.kind == "struct":
        return lambda v: cls(**dict(values(v, getattr)))

    def make(v: Any) -> Any:
        made = object.__new__(cls)
        for name, value in values(v, getattr):
            object.__setattr__(made, name, value)
        return made

    return make


def _default(field: Field) -> Any:
    return field.make_default()
