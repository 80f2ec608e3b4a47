"""Files of every format version there ever was restore to what they held."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.restore.load import restore
from tests.checkpoint.files.state_file_world import content_of, make_backend
from tests.checkpoint.golden.make_state_files import FOLDER, keys_backend, plain, plain_content

VERSIONS = (1,)


def golden(version: int, *names: str) -> list[StateFileReader]:
    files = [FOLDER / f"v{version}-{name}.arrow" for name in names]
    return [StateFileReader.of_bytes(file.read_bytes(), name=file.name) for file in files]


def expected(version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"v{version}-expected.json").read_text(encoding="utf-8"))
    return found


@pytest.mark.reliability(24)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("names", "result"),
    [
        (["base"], "base"),
        (["base", "delta-1"], "delta-1"),
        (["base", "delta-1", "delta-2"], "delta-2"),
        (["base", "merged"], "delta-2"),
    ],
    ids=["base", "one delta", "two deltas", "merged"],
)
def test_golden_files_restore(version: int, names: list[str], result: str) -> None:
    """Catches: any change to the format, the codecs or the key groups that makes old state unreadable or
    different."""
    backend = make_backend()
    restore(golden(version, *names), backend)
    backend.check_invariants()
    assert plain_content(content_of(backend)) == expected(version)[result]


@pytest.mark.reliability(24)
@pytest.mark.reliability(30)
@pytest.mark.parametrize("version", VERSIONS)
def test_golden_keys_of_every_type_restore(version: int) -> None:
    """Catches: a key type that is encoded, normalised or hashed otherwise than when it was written."""
    backend = keys_backend()
    restore(golden(version, "keys"), backend)
    backend.check_invariants()
    ((key, _, value),) = backend.registered_kv_states["moment"]
    assert [plain(key), plain(value), backend.context.grouper(key)] == expected(version)["keys"]
