"""The current key: groups computed by others, and what is said when something is wrong."""

from __future__ import annotations

import pytest

from emberstate.errors import LifecycleError, StateDeclarationError, StateTypeError
from emberstate.keygroups import KeyGroupRange, KeySchema
from emberstate.state.key_context import CHECK_EVERY, KeyContext
from tests.raising import raising


def make(key_type: object = int, start: int = 0, end: int = 7) -> KeyContext:
    """A context that owns a part of eight key groups."""
    return KeyContext(KeySchema.from_python(key_type), 8, KeyGroupRange(start, end))


def test_groups_given_from_outside_are_checked_now_and_then() -> None:
    """Catches a sender that hashes differently: within some rows it is an error, not silently misplaced
    state.
    """
    context = make()
    schema = KeySchema.from_python(int)
    for key in range(3 * CHECK_EVERY):
        context.set_current_key_and_group(key, schema.key_group(key, 8))
        assert context.key == key
        assert context.key_group == schema.key_group(key, 8)
    with pytest.raises(StateDeclarationError) as caught:
        for key in range(2 * CHECK_EVERY):
            context.set_current_key_and_group(key, (schema.key_group(key, 8) + 1) % 8)
    assert caught.value.found == caught.value.key_group == (caught.value.expected + 1) % 8


def test_wrong_types_given_with_a_group_are_found_too() -> None:
    """Catches True coming in as a bigint key beside the check of types."""
    context = make()
    with pytest.raises((StateTypeError, StateDeclarationError)):
        for _ in range(2 * CHECK_EVERY):
            context.set_current_key_and_group(True, KeySchema.from_python(int).key_group(1, 8))


def test_a_foreign_group_leaves_the_context_as_it_was() -> None:
    """Catches the key of one group with the position of another."""
    context = make(start=2, end=4)
    key = next(key for key in range(100) if 2 <= KeySchema.from_python(int).key_group(key, 8) <= 4)
    context.set_current_key(key)
    for group in (-1, 0, 1, 5, 7, 8):
        with raising(StateDeclarationError, key=99, key_group=group):
            context.set_current_key_and_group(99, group)
        assert context.key == key
        assert 2 <= context.key_group <= 4


def test_without_a_key_there_is_no_group() -> None:
    """Catches the group of nothing."""
    context = make()
    with raising(LifecycleError, option="key_group", expected="a current key"):
        context.key_group
    context.set_current_key(1)
    context.clear()
    with pytest.raises(LifecycleError):
        context.key_group
    with raising(LifecycleError, key=1):
        context.check_still(1)


def test_keys_are_normalised() -> None:
    """Catches -0.0 and 0.0 as two keys: Spark hashes them alike, and they are equal."""
    context = make(float)
    context.set_current_key(0.0)
    group = context.key_group
    context.set_current_key(-0.0)
    assert context.key_group == group
    assert str(context.key) == "0.0"


def test_ranges_that_make_no_sense_are_refused() -> None:
    """Catches a context that owns nothing, or groups that do not exist."""
    schema = KeySchema.from_python(int)
    with raising(StateDeclarationError, option="key_group_range"):
        KeyContext(schema, 8, KeyGroupRange(0, 8))
    with pytest.raises(StateDeclarationError):
        KeyContext(schema, 8, KeyGroupRange(0, -1))


def test_a_closed_context_stays_closed() -> None:
    """Catches a context that a timer or a late row brings back to life."""
    context = make()
    context.set_current_key(1)
    context.close()
    for use in (
        lambda: context.set_current_key(1),
        lambda: context.set_current_key_and_group(1, KeySchema.from_python(int).key_group(1, 8)),
        lambda: context.key_group,
        lambda: context.check_still(1),
        context.check_open,
    ):
        with raising(LifecycleError, found="closed"):
            use()
    assert context.key is None
