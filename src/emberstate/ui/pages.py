"""The pages of a job: their names, and which view each shows for the parameters of an address."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

from emberstate.ui.locations import Location
from emberstate.ui.views.batches import batches
from emberstate.ui.views.browser import browse
from emberstate.ui.views.checkpoints import checkpoint, checkpoints
from emberstate.ui.views.diff import difference
from emberstate.ui.views.errors import errors
from emberstate.ui.views.slots import slots
from emberstate.ui.views.states import groups, states

Parameters = Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class Page:
    """A page of a job."""

    #: In addresses, and of its template.
    name: str
    title: str
    view: Callable[[Location, Parameters], dict[str, Any]]
    #: Whether it is asked for again and again while it is open.
    live: bool = True
    #: Whether the list of pages has it.
    listed: bool = True


PAGES: Final = (
    Page("batches", "Batches", lambda location, given: batches(location, given.get("last", ""))),
    Page("checkpoints", "Checkpoints", lambda location, given: checkpoints(location, bool(given.get("disk")))),
    Page("checkpoint", "Checkpoint", lambda location, given: checkpoint(location, given.get("at", "")), listed=False),
    Page("slots", "Slots", lambda location, given: slots(location)),
    Page("states", "States", lambda location, given: states(location, bool(given.get("count")))),
    Page(
        "groups",
        "Key groups",
        lambda location, given: groups(
            location, bool(given.get("count")), given.get("operator", ""), given.get("group", "")
        ),
    ),
    Page(
        "key",
        "Look up a key",
        lambda location, given: browse(
            location, *(given.get(name, "") for name in ("operator", "key", "at", "state"))
        ),
        live=False,
    ),
    Page(
        "diff",
        "Difference",
        lambda location, given: difference(location, given.get("old", ""), given.get("new", "")),
        live=False,
    ),
    Page("errors", "Errors", lambda location, given: errors(location)),
)
