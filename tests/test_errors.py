"""The exceptions: what is common to all of them."""

from __future__ import annotations

import builtins
import inspect
import pickle

import pytest

from emberstate import errors
from emberstate.errors import EmberstateError, Place, StorageError
from emberstate.storage.interface import StorageOutcomeUnknownError

CLASSES = [
    *(one for one in vars(errors).values() if inspect.isclass(one) and issubclass(one, EmberstateError)),
    StorageOutcomeUnknownError,
]
PLACE: Place = {
    "path": "state/000001/ab.arrow",
    "operator": "totals",
    "slot": 3,
    "state": "sum",
    "key": ("ann", 1),
    "key_group": 7,
    "column": "amount",
    "field": "$[0]",
    "batch": 12,
    "checkpoint": 13,
    "option": "size",
    "expected": ("int", "string"),
    "found": "double",
}


def place_of(error: EmberstateError) -> dict[str, object]:
    """All attributes of a place."""
    return {name: getattr(error, name) for name in Place.__annotations__}


@pytest.mark.parametrize("kind", CLASSES)
def test_attributes_travel_with_a_pickle(kind: type[EmberstateError]) -> None:
    """Catches: an attribute that a built-in has, too (ImportError.path), or that a pickle loses."""
    error = pickle.loads(pickle.dumps(kind("what happened", **PLACE)))

    assert type(error) is kind
    assert str(error) == "what happened"
    assert place_of(error) == dict(PLACE)
    assert place_of(kind("elsewhere")) == dict.fromkeys(PLACE), "None where it does not apply"


def test_a_system_error_keeps_its_number_and_its_place() -> None:
    """Catches: an errno that is lost, or taken for the message, when there are attributes."""
    error = pickle.loads(pickle.dumps(StorageError(28, "no space", path="x")))

    assert (error.errno, error.strerror, error.path) == (28, "no space", "x")


def test_what_is_known_of_a_place_is_kept_when_more_is_said() -> None:
    """Catches: an outer layer that overwrites what the inner one knew better, or that loses it with a new text."""
    error = StorageError(28, "no space", path="x", slot=0)
    assert error.place == {"path": "x", "slot": 0}

    assert error.located(path="outer", batch=3) is error
    assert error.place == {"path": "x", "slot": 0, "batch": 3}
    said = error.reworded("batch 3: no space")
    assert (type(said), said.errno, said.strerror) == (StorageError, 28, "batch 3: no space")
    assert said.place == error.place
    assert str(StorageError("no number", path="x").reworded("other")) == "other"


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_is_also_a_built_in(kind: type[EmberstateError]) -> None:
    """Catches: an error that code which knows nothing of emberstate cannot catch by what it is."""
    known = {one for one in vars(builtins).values() if inspect.isclass(one) and issubclass(one, Exception)}
    nearest = [one for one in kind.__mro__ if one in known - {Exception}]

    assert bool(nearest) == (kind is not EmberstateError)


@pytest.mark.parametrize("kind", [one for one in CLASSES if one is not EmberstateError])
def test_every_class_says_what_to_do(kind: type[EmberstateError]) -> None:
    """Catches: a class without an answer to "and now?"."""
    _, found, action = inspect.getdoc(kind).partition("\n\nOperator action: ")  # type: ignore[union-attr]

    assert found and action


def test_there_are_few_classes() -> None:
    """Catches: a class more, for which nobody does anything differently: see decision 29."""
    assert len(CLASSES) <= 19
