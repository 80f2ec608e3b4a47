"""Codecs for declared types: MessagePack through msgspec, checked before and after.

`codec_for` compiles all functions of a type. An encode tests the value exactly (msgspec would not), lowers what msgspec
would not write exactly, and encodes in C. A decode is the reverse; it then tests the few things that hostile bytes
could get past msgspec.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import msgspec

from emberstate.codec.base import Codec
from emberstate.codec.checker import CheckerBuilder
from emberstate.codec.copying import CopyBuilder
from emberstate.codec.declare import declare
from emberstate.codec.explain import Problem, explain
from emberstate.codec.generator import Generator
from emberstate.codec.keys import need_key
from emberstate.codec.lifting import LiftingBuilder
from emberstate.codec.lowering import LoweringBuilder, sorts_by_itself
from emberstate.codec.nodes import LEAVES, Node
from emberstate.codec.refusals import refuse
from emberstate.codec.type_schema import TypeSchema
from emberstate.codec.wire import Shape, shape_of
from emberstate.errors import CodecError, StateTypeError

# The first byte of an unsigned 64-bit integer in MessagePack: without it in the bytes, no int reaches 2**63.
_UINT64: Final = 0xCF

_CACHE: Final = "__msgspec_cache__"


class MsgspecCodec(Codec[Any]):
    """A codec made by `codec_for` or `key_codec_for`."""

    __slots__ = ("_where",)

    def __init__(self, type_: Any, where: str, *, key: bool) -> None:
        node = declare(type_, where)
        if key:
            need_key(node, where)
        shape = shape_of(node)
        self.name = "msgspec"
        self.type = type_
        self.node = node
        self.immutable = node.immutable
        self.schema = TypeSchema.of(node)
        self._where = where
        self.is_key = key
        generator = Generator(node.label)
        deep = CheckerBuilder(generator, deep=True, key=key).build(node)
        problem = _problem_finder(node, key)
        self.check = _check(generator, node, problem)
        self.check_deep = _check_deep(generator, deep, problem)
        self.copy = _copy(generator, node, problem)
        self.encode = _encode(generator, shape, deep, problem, key)
        self.decode = _decode(generator, shape, deep, problem, where, key)
        _forget(node)

    def __reduce__(self) -> tuple[Any, ...]:
        # Compiled functions cannot travel; the type can (to the workers of a cluster, by cloudpickle).
        make = key_codec_for if self.is_key else codec_for
        return functools.partial(make, where=self._where), (self.type,)


def codec_for(type_: Any, *, where: str = "value") -> Codec[Any]:
    """The codec of a declared type. StateDeclarationError, naming the way out, if it cannot be held exactly.

    >>> codec = codec_for(dict[str, list[int]])
    >>> codec.decode(codec.encode({"b": [2], "a": [1]}))
    {'a': [1], 'b': [2]}
    >>> codec.encode({"a": [True]})
    Traceback (most recent call last):
    emberstate.errors.StateTypeError: $['a'][0]: expected int, got bool (True)
    """
    return MsgspecCodec(type_, where, key=False)


def key_codec_for(type_: Any, *, where: str = "key") -> Codec[Any]:
    """The codec of a type used as a key: hashable, unchangeable, and equal exactly if its encoding is equal.

    >>> key_codec_for(tuple[str, int]).immutable
    True
    >>> key_codec_for(list[int])
    Traceback (most recent call last):
    emberstate.errors.StateDeclarationError: key: list[int] can change and cannot be a key; use tuple[T, ...]
    """
    return MsgspecCodec(type_, where, key=True)


def _forget(node: Node) -> None:
    """Remove the attributes that msgspec has set on the user's classes for its cache.

    With them a class cannot be pickled by value, as Spark does with the classes of a script. Decoders do not need them.
    """
    for part in node.walk():
        for cls in (part.cls, part.annotation):
            if isinstance(cls, type) and _CACHE in vars(cls):
                delattr(cls, _CACHE)


FindProblem = Callable[[Any], Problem | None]


def _problem_finder(node: Node, key: bool) -> FindProblem:
    def problem(value: Any) -> Problem | None:
        return explain(node, value, key=key)

    return problem


def _refusal(problem: FindProblem, doing: str) -> Callable[[Any, Exception | None], Exception]:
    """What to raise for a value that did not pass: made only then."""

    def refusal(value: Any, error: Exception | None) -> Exception:
        if isinstance(error, MemoryError):
            return error  # it says nothing about the value
        try:
            found = problem(value)
        except Exception as other:  # a value that changes meanwhile, or has misleading methods
            found, error = None, other
        if found is not None:
            return StateTypeError(str(found), field=found.field)
        return CodecError(f"$: the value cannot be {doing} ({type(error).__name__}: {error})", field="$")

    return refusal


def _check(generator: Generator, node: Node, problem: FindProblem) -> Callable[[Any], None]:
    refusal = generator.bind(_refusal(lambda value: problem(value) or Problem("$", "wrong type"), "checked"))
    if len(node.classes) == 1:
        test = f"type(v) is not {generator.bind(node.classes[0])}"
    else:
        test = f"type(v) not in {generator.bind(frozenset(node.classes))}"
    return generator.function("v", [f"if {test}:", f"    raise {refusal}(v, None)"])


def _check_deep(generator: Generator, deep: Callable[[Any], bool], problem: FindProblem) -> Callable[[Any], None]:
    refusal = generator.bind(_refusal(problem, "checked"))
    body = ["error = None", "try:", f"    if {generator.bind(deep)}(v):", "        return"]
    body += ["except Exception as e:", "    error = e", f"raise {refusal}(v, error)"]
    return generator.function("v", body)


def _copy(generator: Generator, node: Node, problem: FindProblem) -> Callable[[Any], Any]:
    if node.immutable:
        return generator.function("v", ["return v"])
    refusal = generator.bind(_refusal(problem, "copied"))
    copied = CopyBuilder(generator).expression(node, "v")
    body = ["try:", f"    return {copied}", "except Exception as e:", "    error = e"]
    return generator.function("v", [*body, f"raise {refusal}(v, error) from None"])


def _encode(
    generator: Generator, shape: Shape, deep: Callable[[Any], bool], problem: FindProblem, key: bool
) -> Callable[[Any], bytes]:
    node = shape.node
    by_hand = not sorts_by_itself(node)
    # The formats are msgspec's defaults, spelled out because stored bytes depend on them.
    encoder = msgspec.msgpack.Encoder(
        order=None if by_hand else "deterministic", decimal_format="string", uuid_format="canonical"
    )
    leaf = node.kind in LEAVES
    test = CheckerBuilder(generator, deep=leaf or key, key=key).expression(node, "v")
    lowered = LoweringBuilder(generator, encoder.encode, by_hand=by_hand).expression(shape, "v")
    encode, refusal = generator.bind(encoder.encode), generator.bind(_refusal(problem, "encoded"))
    body = ["error = None", "try:", f"    if {test}:"]
    if leaf or key or not any(part.kind == "int" for part in node.walk()):
        body += [f"        return {encode}({lowered})"]
    else:
        # Looking for one byte is much cheaper than comparing every int with the limits.
        body += [f"        data = {encode}({lowered})"]
        body += [f"        if {_UINT64} not in data or {generator.bind(deep)}(v):", "            return data"]
    body += ["except Exception as e:", "    error = e", f"raise {refusal}(v, error) from None"]
    return generator.function("v", body)


def _decode(
    generator: Generator, shape: Shape, deep: Callable[[Any], bool], problem: FindProblem, where: str, key: bool
) -> Callable[[bytes], Any]:
    node = shape.node
    try:
        decoder = msgspec.msgpack.Decoder(shape.annotation)
    except Exception as error:
        raise refuse(where, f"msgspec cannot decode {node.label} ({error})", "use a simpler type") from None
    bad = generator.bind(_bad_bytes(node, problem))
    lifted = LiftingBuilder(generator).expression(shape, "v")
    kinds = {part.kind for part in node.walk()}
    body = ["v = error = None", "try:", f"    v = {generator.bind(decoder.decode)}(data)"]
    if lifted != "v":
        body += [f"    v = {lifted}"]
    key_float = any(part.kind == "float" for part in (node.walk() if key else node.walk_keys()))
    if kinds & {"datetime", "time", "decimal"} or key_float:
        # Zones, NaNs: msgspec would take them, from bytes that no encoder of ours wrote.
        body += [f"    if {generator.bind(deep)}(v):", "        return v"]
    elif "int" in kinds:
        body += [f"    if {_UINT64} not in data or {generator.bind(deep)}(v):", "        return v"]
    else:
        body += ["    return v"]
    body += ["except Exception as e:", "    error = e", f"raise {bad}(v, error) from None"]
    return generator.function("data", body)


def _bad_bytes(node: Node, problem: FindProblem) -> Callable[[Any, Exception | None], Exception]:
    def bad(value: Any, error: Exception | None) -> Exception:
        if isinstance(error, MemoryError):
            return error  # it says nothing about the bytes
        if isinstance(error, KeyError):
            what = f"no member {error} in an Enum"
        else:
            what = str(error if error is not None else problem(value) or "not such a value")
        return CodecError(f"the bytes do not hold {node.label}: {what}")

    return bad
