"""A location with hostile values, made once; and a client of its page."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.commit.savepoint import write_savepoint
from emberstate.checkpoint.manifest.catalogue import read_checkpoint
from emberstate.checkpoint.manifest.pins import pin
from emberstate.storage.uri import open_storage
from emberstate.ui.app import make_app
from tests.cli.cards import harness, pay

with warnings.catch_warnings():  # of a change of names in its dependencies
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

SCRIPT = "<script>alert('x')</script>"
LONG = "L" * 1_000_000
HIDDEN = "a\x00b\u202ec"

Client = Callable[..., TestClient]


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job: an opening (1), three batches (2 to 4), a savepoint, a pin."""
    folder = tmp_path_factory.mktemp("ui") / "cards-state"
    with harness(FsStateBackend(folder)) as running:
        running.process_batch([pay(f"card-{number}", float(number)) for number in range(20)])
        running.process_batch([pay("ann", 3.5), pay(SCRIPT, 8.25, shop=SCRIPT), pay(HIDDEN, 1.0, shop=HIDDEN)])
        running.process_batch([pay("ann", 20.0, 1, LONG)])
    storage = open_storage(folder)
    write_savepoint(storage, read_checkpoint(storage, 4), storage, "monday")
    pin(storage, 4, f"because {SCRIPT}")
    return folder


@pytest.fixture
def location(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return Path(shutil.copytree(made, tmp_path / "location"))


@pytest.fixture
def client() -> Client:
    """Makes a client of a page over locations."""

    def make(*locations: Path, headers: dict[str, str] | None = None, **options: str) -> TestClient:
        app = make_app([open_storage(location) for location in locations], **options)  # type: ignore[arg-type]
        return TestClient(app, base_url="http://localhost:8787", headers=headers, follow_redirects=False)

    return make
