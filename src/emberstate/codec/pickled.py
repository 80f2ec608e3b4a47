"""Pickle, only on explicit request.

Loading a pickle calls whatever it names, so this codec names what may be called: an allow-list of classes
and modules. Both directions use it: a value that could not be loaded again is refused when it is encoded.

Limits, which is why typed codecs are the default: sets are written in hash order and shared objects by
identity, so equal values can have different bytes; a renamed class or field does not restore; hostile bytes
cannot run code that is not listed, but they can call listed classes with any arguments, set attributes on
them, and use much memory.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

from emberstate.codec.base import Codec
from emberstate.codec.refusals import label_of, refuse
from emberstate.codec.type_schema import PICKLE, TypeSchema
from emberstate.errors import CodecError, StateTypeError

_PROTOCOL: Final = 5
# Data only: none of these runs anything it is given. (No getattr, eval, partial, import, __reduce__ helpers.)
_SAFE: Final = frozenset(
    {("builtins", name) for name in ["set", "frozenset", "bytearray", "complex", "range", "slice"]}
    | {("collections", name) for name in ["OrderedDict", "Counter", "deque"]}
    | {("datetime", name) for name in ["date", "datetime", "time", "timedelta", "timezone"]}
    | {("decimal", "Decimal"), ("uuid", "UUID"), ("uuid", "SafeUUID"), ("fractions", "Fraction")}
)
#: Modules that were moved: older pickles name their classes by the old ones.
_MOVED: Final = {
    "emberstate.runtime.domain_timers": "emberstate.runtime.functions.domain_timers",
    "emberstate.state.ttl": "emberstate.state.ttl.config",
}


class PickleCodec(Codec[Any]):
    """A codec made by `pickle_codec`."""

    __slots__ = ("_allow",)

    def __init__(self, type_: Any, allow: tuple[Any, ...], where: str) -> None:
        origin = getattr(type_, "__origin__", type_)
        if not isinstance(origin, type):
            raise refuse(where, f"pickle needs a class, got {label_of(type_)}", "use object for any value")
        allowed = _Allowed((*allow, origin) if origin.__module__ != "builtins" else allow, where)
        self.name = "pickle"
        self.type = type_
        self.node = None
        self.immutable = False
        self.is_key = False
        self.schema = TypeSchema(PICKLE, name=label_of(type_))
        self._allow = allow

        def check(value: Any) -> None:
            if not isinstance(value, origin):
                raise StateTypeError(f"$: expected {label_of(type_)}, got {label_of(type(value))}", field="$")

        def encode(value: Any) -> bytes:
            check(value)
            return allowed.dumps(value)

        def decode(data: bytes) -> Any:
            value = allowed.loads(data)
            if not isinstance(value, origin):
                raise CodecError(f"the pickle holds {label_of(type(value))}, not {label_of(type_)}")
            return value

        self.check = check
        self.encode = encode
        self.decode = decode
        self.copy = lambda value: decode(encode(value))
        self.check_deep = lambda value: (encode(value), None)[1]

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(pickle_codec, allow=self._allow), (self.type,)


def pickle_codec(type_: Any = object, *, allow: Iterable[Any] = (), where: str = "value") -> Codec[Any]:
    """A codec that pickles. `allow` lists what a pickle may name: classes, or names of modules (str) whose
    own classes are all allowed. The declared class itself is allowed, and plain data of the standard library.

    >>> codec = pickle_codec(complex)
    >>> codec.decode(codec.encode(1 + 2j))
    (1+2j)
    >>> import pathlib
    >>> pickle_codec().encode(pathlib.PurePosixPath("/"))
    Traceback (most recent call last):
    emberstate.errors.StateTypeError: $: pickle may not name pathlib.PurePosixPath; list it in allow=[...]
    """
    return PickleCodec(type_, tuple(allow), where)


class _Allowed:
    """The allow-list, and pickling under it."""

    def __init__(self, allow: Iterable[Any], where: str) -> None:
        self._classes: dict[tuple[str, str], type[Any]] = {}
        self._modules: set[str] = set()
        for entry in allow:
            if isinstance(entry, str):
                self._modules.add(_MOVED.get(entry, entry))
            elif isinstance(entry, type):
                self._classes[entry.__module__, entry.__qualname__] = entry
            else:
                raise refuse(
                    where, f"allow cannot hold {entry!r}", "list classes, and modules by their names"
                )

    def find(self, module: str, name: str) -> Any:
        """The class a pickle names, if it may; None otherwise."""
        module = _MOVED.get(module, module)
        listed = self._classes.get((module, name))
        if listed is not None:
            return listed
        if module not in self._modules and (module, name) not in _SAFE:
            return None
        if module not in sys.modules:
            try:
                __import__(module)  # the user named this very module
            except ImportError:
                return None
        found: Any = sys.modules[module]
        for part in name.split("."):
            found = getattr(found, part, None)
        # Only classes that the module itself defines: not what it imported, and nothing inside such a thing.
        own = isinstance(found, type) and found.__qualname__ == name
        return found if own and (found.__module__ == module or (module, name) in _SAFE) else None

    def dumps(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        try:
            _Pickler(buffer, self.find).dump(value)
        except (StateTypeError, MemoryError):
            raise
        except Exception as error:
            raise StateTypeError(
                f"$: the value cannot be pickled ({type(error).__name__}: {error})", field="$"
            ) from None
        return buffer.getvalue()

    def loads(self, data: bytes) -> Any:
        try:
            return _Unpickler(io.BytesIO(data), self.find).load()
        except (CodecError, MemoryError):
            raise
        except Exception as error:
            raise CodecError(f"the pickle cannot be read ({type(error).__name__}: {error})") from None


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, find: Callable[[str, str], Any]) -> None:
        super().__init__(file, _PROTOCOL)
        self._find = find

    def reducer_override(self, obj: Any) -> Any:
        # Called for everything that is not plain data, so also for each class and function to be named.
        if isinstance(obj, type) or (callable(obj) and hasattr(obj, "__qualname__")):
            module, name = str(getattr(obj, "__module__", None)), obj.__qualname__
            if self._find(module, name) is not obj:
                raise StateTypeError(f"$: pickle may not name {module}.{name}; list it in allow=[...]", field="$")
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, find: Callable[[str, str], Any]) -> None:
        super().__init__(file)
        self._find = find

    def find_class(self, module: str, name: str) -> Any:
        found = self._find(module, name)
        if found is None:
            named = f"{module}.{name}"
            raise CodecError(f"the pickle names {named}, which is not in allow=[...]", option="allow", found=named)
        return found
