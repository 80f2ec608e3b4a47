"""What a user writes: a function of rows and timers of one key, with state.

An instance is a prototype. An operator copies it, opens the copy, and makes a new copy when a transaction is rolled
back: attributes of a function are a cache, never state. Make what cannot be copied, such as a connection, in `open`.

Outputs are rows: tuples, NamedTuples or `Row`s in the order of the output's schema; or dicts, dataclasses or
`msgspec.Struct`s by column name. A method yields them, or returns a list or iterator of them, or returns one as the
only one, or None for none. Anything else is refused.

Functions are generic in the types of their rows, key and output: `KeyedProcessFunction[Payment, str, Alert]`. Arguments
that are left out are Any. What the types do is in `row_annotations`.

Thread safety: a function is used by one thread, that of its operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.declared_states import Declaration, DeclaredState, declared_states_of

OutputRow = tuple[Any, ...] | Mapping[str, Any]
Outputs = Iterable[OutputRow] | OutputRow | None

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import TypeVar  # type checkers bring it along, and read its defaults

    from emberstate.runtime.functions.batch_keys import BatchKeys
    from emberstate.runtime.functions.context import FunctionContext
    from emberstate.runtime.functions.domain_timers import KeyedTimer

    In = TypeVar("In", default=Any)
    In2 = TypeVar("In2", default=Any)
    Key = TypeVar("Key", default=Any)
    Out = TypeVar("Out", default=OutputRow)
    AnyOut = TypeVar("AnyOut", default=Any)
else:
    from typing import TypeVar

    In, In2, Key, Out, AnyOut = (TypeVar(name) for name in ("In", "In2", "Key", "Out", "AnyOut"))


class ProcessFunction(Generic[AnyOut]):
    """Base of all functions: open, close, and timers."""

    #: The type of the namespaces of this function's timers; windows set it.
    timer_namespace_type: Any = str

    _declared: ClassVar[dict[str, DeclaredState[Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._declared = declared_states_of(cls)

    if not TYPE_CHECKING:

        def __class_getitem__(cls, arguments: Any) -> Any:
            """The class with these arguments; those that are left out at the end are Any, as for type checkers."""
            given = arguments if isinstance(arguments, tuple) else (arguments,)
            return super().__class_getitem__((*given, *[Any] * (len(cls.__parameters__) - len(given))))

    def open(self, ctx: FunctionContext) -> None:
        """Prepare: called once, before any row, without a current key. Get states by descriptor here."""

    def close(self) -> None:
        """Release what `open` acquired."""

    def on_timer(self, timer: KeyedTimer, ctx: FunctionContext) -> Iterable[AnyOut] | AnyOut | None:
        """Handle a timer of the current key that fires now."""
        raise NotImplementedError

    def declared_states(self) -> list[Declaration]:
        """Return the declared states; a function whose states depend on its arguments overrides it."""
        return [state.declaration for state in self._declared.values()]

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._declared:
            raise StateDeclarationError(
                f"{type(self).__qualname__}.{name} is a state and cannot be assigned: change what it holds "
                f"(update, put, add, clear), or call the attribute something else",
                state=type(self)._declared[name].declaration.descriptor.name,
            )
        object.__setattr__(self, name, value)


class KeyedProcessFunction(ProcessFunction[Out], Generic[In, Key, Out]):
    """A function of the rows of one input, key by key; generic in row, key and output.

    >>> from emberstate.runtime.functions.declared_states import value_state
    >>> class Count(KeyedProcessFunction):
    ...     seen = value_state(int, default=0)
    ...
    ...     def process_element(self, row, ctx):
    ...         self.seen.update(self.seen.value() + 1)
    ...         yield ctx.key, self.seen.value()
    >>> [declared.descriptor.name for declared in declarations(Count())]
    ['seen']
    """

    def process_element(self, row: In, ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle one row of the current key."""
        raise NotImplementedError

    def process_batch(self, key: Key, rows: list[In], ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle many rows of one key at once; overridden, it is called in place of `process_element`.

        The rows are in order, and are those of the key that arrived together: more may follow in the same
        transaction. No timer fires among them. Event time is that of the first row that arrived, so what is
        put out may depend on which rows arrived together. `ctx.timestamp` is the last row's.
        """
        raise NotImplementedError

    def process_arrow(self, batch: pa.RecordBatch, keys: BatchKeys) -> pa.RecordBatch | pa.Table | None:
        """Handle many rows of many keys at once, as an Arrow batch; overridden, it is the only method that gets rows.

        `keys` has the handle of each row's key, by which states that are declared by `column_state` are read and
        written. Returns the output's rows, or None. The rows are those that arrived together; with event time they are
        in its order, and late ones are not among them. What is put out may depend on which rows arrived together.
        """
        raise NotImplementedError

    def process_late_element(self, row: In, ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle a row that is behind the watermark; overridden, it decides what happens to such rows.

        Unless overridden, late rows are counted and dropped, or go to the late output if the operator has
        one. To treat them as all others, write `process_late_element = process_element`.
        """
        raise NotImplementedError


class KeyedCoProcessFunction(ProcessFunction[Out], Generic[In, In2, Key, Out]):
    """A function of the rows of two inputs that have the same key, sharing its state.

    Generic in the rows of both, key and output.
    """

    def process_element1(self, row: In, ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle one row of the first input."""
        raise NotImplementedError

    def process_element2(self, row: In2, ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle one row of the second input."""
        raise NotImplementedError

    def process_late_element1(self, row: In, ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle a late row of the first input; see `KeyedProcessFunction.process_late_element`."""
        raise NotImplementedError

    def process_late_element2(self, row: In2, ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle a late row of the second input."""
        raise NotImplementedError


class KeyedBroadcastProcessFunction(KeyedProcessFunction[In, Key, Out], Generic[In, In2, Key, Out]):
    """A function of keyed rows, with broadcast state that the rows of a second input change.

    Generic in row, broadcast row, key and output.

    Every slot sees every broadcast row, in the same order, before the keyed rows of the same transaction. So
    what is made of them must follow from the rows and the broadcast state alone, or slots would disagree.
    """

    def process_broadcast_element(self, row: In2, ctx: FunctionContext) -> Iterable[Out] | Out | None:
        """Handle one broadcast row: there is no current key, and broadcast state can be written.

        It runs in every slot, so what it yields comes once per slot.
        """
        raise NotImplementedError


def declarations(function: ProcessFunction) -> list[Declaration]:
    """The states that a function declares, without running it."""
    return function.declared_states()


def overrides(function: ProcessFunction, method: str) -> bool:
    """Whether a function has its own version of one of the methods above."""
    for base in type(function).__mro__:
        if method in vars(base):
            return base not in _OURS
    return False


_OURS = (ProcessFunction, KeyedProcessFunction, KeyedCoProcessFunction, KeyedBroadcastProcessFunction)
