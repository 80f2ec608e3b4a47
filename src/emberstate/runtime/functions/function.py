"""What a user writes: a function of rows and timers of one key, with state.

An instance is a prototype. An operator copies it, opens the copy, and makes a new copy when a transaction is rolled
back: attributes of a function are a cache, never state. Make what cannot be copied, such as a connection, in `open`.

Outputs are rows: tuples or `Row`s in the order of the output's schema, or dicts by column name. A method
yields them, or returns a list or iterator of them, or returns one tuple, `Row` or dict as the only one, or
None for none. Anything else is refused.

Thread safety: a function is used by one thread, that of its operator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from emberstate.errors import StateDeclarationError
from emberstate.runtime.functions.declared_states import Declaration, DeclaredState, declared_states_of

if TYPE_CHECKING:
    from emberstate.runtime.functions.context import FunctionContext
    from emberstate.runtime.functions.domain_timers import KeyedTimer

OutputRow = tuple[Any, ...] | Mapping[str, Any]
Outputs = Iterable[OutputRow] | OutputRow | None


class ProcessFunction:
    """Base of all functions: open, close, and timers."""

    #: The type of the namespaces of this function's timers; windows set it.
    timer_namespace_type: Any = str

    _declared: ClassVar[dict[str, DeclaredState[Any]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._declared = declared_states_of(cls)

    def open(self, ctx: FunctionContext) -> None:
        """Prepare: called once, before any row, without a current key. Get states by descriptor here."""

    def close(self) -> None:
        """Release what `open` acquired."""

    def on_timer(self, timer: KeyedTimer, ctx: FunctionContext) -> Outputs:
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


class KeyedProcessFunction(ProcessFunction):
    """A function of the rows of one input, key by key.

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

    def process_element(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Handle one row of the current key."""
        raise NotImplementedError

    def process_batch(self, key: Any, rows: list[Any], ctx: FunctionContext) -> Outputs:
        """Handle many rows of one key at once; overridden, it is called in place of `process_element`.

        The rows are in order, and are those of the key that arrived together: more may follow in the same
        transaction. No timer fires among them. Event time is that of the first row that arrived, so what is
        put out may depend on which rows arrived together. `ctx.timestamp` is the last row's.
        """
        raise NotImplementedError

    def process_late_element(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Handle a row that is behind the watermark; overridden, it decides what happens to such rows.

        Unless overridden, late rows are counted and dropped, or go to the late output if the operator has
        one. To treat them as all others, write `process_late_element = process_element`.
        """
        raise NotImplementedError


class KeyedCoProcessFunction(ProcessFunction):
    """A function of the rows of two inputs that have the same key, sharing its state."""

    def process_element1(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Handle one row of the first input."""
        raise NotImplementedError

    def process_element2(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Handle one row of the second input."""
        raise NotImplementedError

    def process_late_element1(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Handle a late row of the first input; see `KeyedProcessFunction.process_late_element`."""
        raise NotImplementedError

    def process_late_element2(self, row: Any, ctx: FunctionContext) -> Outputs:
        """Handle a late row of the second input."""
        raise NotImplementedError


class KeyedBroadcastProcessFunction(KeyedProcessFunction):
    """A function of keyed rows, with broadcast state that the rows of a second input change.

    Every slot sees every broadcast row, in the same order, before the keyed rows of the same transaction. So
    what is made of them must follow from the rows and the broadcast state alone, or slots would disagree.
    """

    def process_broadcast_element(self, row: Any, ctx: FunctionContext) -> Outputs:
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
