"""`emberstate checkpoints`: listing, verifying, comparing, measuring, collecting."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint
from emberstate.checkpoint.manifest.pins import pin
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.errors import CheckpointCollectedError, FencedError
from emberstate.storage.local import LocalStorage
from tests.cli.cards import harness, pay
from tests.cli.conftest import Run
from tests.raising import raising

COMMANDS: list[tuple[str, ...]] = [
    ("checkpoints", "ls"),
    ("checkpoints", "show"),
    ("checkpoints", "verify", "--all"),
    ("checkpoints", "du"),
    ("checkpoints", "gc"),
    ("checkpoints", "gc", "--dry-run", "--retained", "1"),
    ("checkpoints", "diff", "2"),
    ("checkpoints", "diff", "2", "4", "--keys"),
    ("state", "ls", "--count"),
    ("state", "get", "shops", "ann"),
    ("state", "top"),
    ("state", "keys", "shops", "--match", "card-*"),
    ("savepoint", "ls"),
    ("rescale", "--parallelism", "3", "--dry-run"),
    ("savepoint", "restore-check", "--function", "tests.cli.cards:Cards"),
]


def with_location(command: tuple[str, ...], location: Path) -> list[Any]:
    """A command with its LOCATION put where it belongs."""
    words = 1 if command[0] == "rescale" else 2
    return [*command[:words], location, *command[words:]]


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_reading_changes_nothing(cli: Run, each_location: Path, command: tuple[str, ...]) -> None:
    """Catches: a command that reads and leaves something behind; JSON that is none, or was not asked for."""
    before = contents(each_location)
    plain = cli(*with_location(command, each_location))
    as_json = cli(*with_location(command, each_location), "--json")
    assert contents(each_location) == before
    assert plain.code == as_json.code == ("diff" in command)
    assert isinstance(as_json.json, dict)
    assert plain.out and not plain.out.startswith("{")
    assert plain.err == as_json.err == ""


def test_ls(cli: Run, own_location: Path) -> None:
    """Catches: a shape that scripts know and that changed; a savepoint, a pin or a damaged manifest left out."""
    storage = LocalStorage(own_location)
    pin(storage, 3, "a test")
    assert cli("savepoint", "create", own_location, "one").code == 0
    manifest = own_location / "checkpoints" / "000000000002" / "manifest"
    manifest.write_bytes(manifest.read_bytes()[:-1] + b"?")
    found = cli("checkpoints", "ls", own_location, "--json").json
    for item in (*found["checkpoints"][1:], *found["savepoints"]):
        assert item.pop("bytes") == item["stored_bytes"]  # the name that it had
    sizes = [item.pop("stored_bytes") for item in (*found["checkpoints"][1:], *found["savepoints"])]
    deltas = [item.pop("delta_bytes") for item in (*found["checkpoints"][1:], *found["savepoints"])]
    assert sizes[0] < sizes[1] == sizes[2]
    assert deltas[0] > deltas[1] > deltas[2] == 0
    problem = found["checkpoints"][0].pop("problem")
    assert "checkpoints/000000000002/manifest" in problem
    found["savepoints"][0].pop("created")
    common = {"job": "cards", "base_bytes": 0, "incarnation": 1, "problem": None}
    common |= {"sync_seconds": None, "async_seconds": None}
    commit = {**common, "kind": "commit", "created": "2026-01-01T00:00:00Z", "seconds": 0.0}
    assert found == {
        "location": str(own_location),
        "incarnation": 1,
        "checkpoints": [
            {"number": 2, "pins": []},
            {**commit, "number": 3, "batch": 1, "watermark": None, "files": 4, "output_rows": 3, "pins": ["a test"]}
            | {"watermark": "2026-03-01T12:00:00Z"},
            {**commit, "number": 4, "batch": 2, "watermark": None, "files": 5, "output_rows": 1, "pins": []}
            | {"watermark": "2026-03-01T12:00:00Z"},
        ],
        "savepoints": [
            {**common, "name": "one", "kind": "savepoint", "number": 4, "batch": 2, "seconds": None}
            | {"watermark": "2026-03-01T12:00:00Z", "files": 5, "output_rows": 0}
        ],
    }
    lines = cli("checkpoints", "ls", own_location).out.splitlines()
    assert lines[0].split()[:3] == ["checkpoint", "kind", "batch"]
    assert lines[1].split()[:2] == ["2", "damaged"]
    assert lines[2].endswith("pinned: a test")
    assert lines[-1].startswith("one ")


def test_show(cli: Run, location: Path) -> None:
    """Catches: a manifest shown other than it is; a checkpoint that was asked for by number ignored."""
    found = cli("checkpoints", "show", location, "--checkpoint", "3", "--json").json
    assert found["manifest"]["number"] == found["summary"]["number"] == 3
    assert [slot["groups"] for slot in found["manifest"]["operators"][0]["slots"]] == [[0, 7], [8, 15]]
    shown = cli("checkpoints", "show", location).out
    assert "batch           2 of query harness" in shown
    assert shown.count("delta") == 5


def test_nothing_there(cli: Run, tmp_path: Path, location: Path) -> None:
    """Catches: an empty list where the location was mistyped; a folder made by looking."""
    missing = tmp_path / "missing"
    for command in COMMANDS:
        found = cli(*with_location(command, missing))
        assert (found.code, found.out) == (3, "")
        assert found.err.startswith(f"emberstate: there is no checkpoint and no savepoint: {missing} does not")
    assert not missing.exists()
    found = cli("checkpoints", "show", location, "--checkpoint", "77")
    assert (found.code, found.err.count("\n")) == (3, 1)
    assert "checkpoint 77 is not in" in found.err
    assert cli("checkpoints", "show", location, "--savepoint", "nope").code == 3
    assert cli("checkpoints", "show", location, "--savepoint", "x", "--checkpoint", "2").code == 2
    assert cli("checkpoints", "ls", "gs://bucket/x").code == 3


# -- verify ---------------------------------------------------------------------------------------------------


def test_verify_names_the_file(cli: Run, own_location: Path) -> None:
    """Catches: damage that is not found, wherever it is, or found in another file."""
    storage = LocalStorage(own_location)
    manifest = "checkpoints/000000000004/manifest"
    places = {(ref.path, ref.offset, ref.size) for ref in read_checkpoint(storage, 4).file_refs()}
    places.add((manifest, 0, storage.size(manifest)))
    assert len({path for path, _, _ in places}) == 4
    for path, offset, size in sorted(places):
        file = own_location / path
        data = file.read_bytes()
        for position in (offset, offset + size // 3, offset + size - 1):
            file.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            found = cli("checkpoints", "verify", own_location, "--json")
            problems = found.json["checkpoints"][0]["problems"]
            assert (found.code, found.json["ok"]) == (1, False), (path, position)
            assert problems and all(path in problem for problem in problems), (path, position)
        if path != manifest:
            file.unlink()
            assert path in cli("checkpoints", "verify", own_location).out
        file.write_bytes(data)
    assert cli("checkpoints", "verify", own_location).code == 0


def test_verify_all(cli: Run, own_location: Path) -> None:
    """Catches: savepoints left out; one damaged checkpoint that hides others."""
    cli("savepoint", "create", own_location, "one")
    (own_location / "checkpoints" / "000000000002" / "manifest").write_bytes(b"")
    part = next(path for path in (own_location / "savepoints" / "one").iterdir() if path.name != "manifest")
    part.write_bytes(b"x" * part.stat().st_size)
    found = cli("checkpoints", "verify", own_location, "--all", "--json")
    state = {item["savepoint"] or item["number"]: bool(item["problems"]) for item in found.json["checkpoints"]}
    assert (found.code, state) == (1, {2: True, 3: False, 4: False, "one": True})
    assert cli("checkpoints", "verify", own_location, "--checkpoint", "3").code == 0
    assert cli("checkpoints", "verify", own_location, "--savepoint", "one").code == 1
    assert cli("checkpoints", "verify", own_location, "--all", "--checkpoint", "3").code == 2


# -- diff -----------------------------------------------------------------------------------------------------


def test_diff(cli: Run, own_location: Path) -> None:
    """Catches: counts or keys that are wrong; an exit code that does not say whether anything differs."""
    found = cli("checkpoints", "diff", own_location, "2", "3", "--json")
    counts = {item["state"]: (item["added"], item["removed"], item["changed"]) for item in found.json["states"]}
    assert found.code == 1
    assert counts == {
        "amounts": (3, 0, 0),
        "best": (2, 0, 1),
        "last": (2, 0, 1),
        "mean": (2, 0, 1),
        "shops": (2, 0, 1),
        "timers/event-time timers": (2, 0, 0),
        "timers/processing-time timers": (0, 0, 0),
    }
    same = cli("checkpoints", "diff", own_location, "3", "3", "--json")
    assert (same.code, same.json["differs"]) == (0, False)
    cli("savepoint", "create", own_location, "now")
    assert cli("checkpoints", "diff", own_location, "latest", "savepoint:now").code == 0
    back = cli("checkpoints", "diff", own_location, "4", "2", "--state", "best", "--keys", "--json").json
    changes = [(item["key"], item["change"], item["old"], item["new"]) for item in back["states"][0]["changes"]]
    assert sorted(changes) == [
        ("ann", "removed", 20.0, None),
        ("bob", "removed", 8.25, None),
        ("card-3", "changed", 70.0, 3.0),
    ]
    limited = cli("checkpoints", "diff", own_location, "4", "2", "--state", "best", "--keys", "--limit", "1")
    assert "the first 1 of 3" in limited.out
    for wrong in (("x",), ("2", "3", "--state", "nope"), ("2", "3", "--operator", "nope")):
        assert cli("checkpoints", "diff", own_location, *wrong).code == 2


# -- du and gc ------------------------------------------------------------------------------------------------


def test_du(cli: Run, own_location: Path) -> None:
    """Catches: bytes that are not counted, or twice."""
    cli("savepoint", "create", own_location, "one")
    (own_location / "state" / "000001").mkdir(parents=True)
    (own_location / "state" / "000001" / "00ff.arrow").write_bytes(b"x" * 1000)
    found = cli("checkpoints", "du", own_location, "--json").json
    sizes = {path.relative_to(own_location): path.stat().st_size for path in own_location.rglob("*") if path.is_file()}
    folders = sum(folder["retained_bytes"] for folder in found["folders"])
    assert found["retained_bytes"] == sum(sizes.values()) == folders
    saved = sum(size for path, size in sizes.items() if path.parts[0] == "savepoints")
    assert found["savepoints"] == [{"name": "one", "retained_bytes": saved, "bytes": saved}]
    assert found["collectable_bytes"] == 1000 + sizes[Path("claims/000001")]
    assert all(item["alone_bytes"] < item["retained_bytes"] for item in found["checkpoints"])
    assert "would free" in cli("checkpoints", "du", own_location).out


def test_gc_does_what_it_shows(cli: Run, own_location: Path) -> None:
    """Catches: a plan that is not what a collection does; a job that cannot go on after it."""
    garbage = own_location / "state" / "000001"
    garbage.mkdir(parents=True)
    (garbage / "00ff.arrow").write_bytes(b"x" * 1000)
    (own_location / "notes.txt").write_text("somebody's own")
    plan = cli("checkpoints", "gc", own_location, "--retained", "1", "--json").json
    assert plan["checkpoints"] == [2, 3] and plan["kept"] == [4] and not plan["deleted"]
    assert "state/000001/00ff.arrow" in plan["files"]
    before = contents(own_location)
    done = cli("checkpoints", "gc", own_location, "--retained", "1", "--yes", "--json")
    assert (done.code, done.json["deleted"], done.err) == (0, True, "")
    gone = {name for name, data in before.items() if data is not None} - contents(own_location).keys()
    assert gone == {*plan["files"], *(f"checkpoints/{number:012}/manifest" for number in plan["checkpoints"])}
    assert checkpoint_numbers(LocalStorage(own_location)) == [4, 5]  # with an opening of its own
    assert cli("checkpoints", "verify", own_location, "--all").code == 0
    with harness(FsStateBackend(own_location)) as running:
        running.process(pay("ann", 1.0, 2))
        assert running.state("amounts", "ann") == [3.5, 20.0, 1.0]


def test_gc_leaves_a_job_alone_that_looks_alive(cli: Run, tmp_path: Path) -> None:
    """Catches: a running job that is fenced by mistake; one that loses anything when it is taken over on purpose."""
    with harness(FsStateBackend(tmp_path)) as running:
        running.process(pay("ann", 1.0))
        before = contents(tmp_path)
        refused = cli("checkpoints", "gc", tmp_path, "--yes")
        assert (refused.code, refused.out) == (3, "")
        assert "looks alive" in refused.err and "--take-over" in refused.err
        assert contents(tmp_path) == before
        running.process(pay("ann", 2.0))
        assert cli("checkpoints", "gc", tmp_path, "--yes", "--take-over").code == 0
        with raising(FencedError, path="claims/000002", expected=1, found=2):
            running.process(pay("ann", 4.0))
    with harness(FsStateBackend(tmp_path)) as running:
        assert running.state("amounts", "ann") == [1.0, 2.0]
        running.process(pay("ann", 4.0))
        assert running.state("amounts", "ann") == [1.0, 2.0, 4.0]


def test_gc_keeps_pinned_and_savepoints(cli: Run, own_location: Path) -> None:
    """Catches: something collected that somebody reads."""
    cli("savepoint", "create", own_location, "one")
    pin(LocalStorage(own_location), 2, "a test")
    plan = cli("checkpoints", "gc", own_location, "--retained", "1", "--json").json
    assert (plan["kept"], plan["pinned"], plan["checkpoints"]) == ([2, 4], [2], [3])
    assert cli("checkpoints", "gc", own_location, "--retained", "1", "--yes").code == 0
    assert cli("checkpoints", "verify", own_location, "--all").code == 0
    assert cli("checkpoints", "show", own_location, "--checkpoint", "2").code == 0
    assert cli("checkpoints", "show", own_location, "--savepoint", "one").code == 0
    for wrong in (("--yes", "--dry-run"), ("--take-over",), ("--retained", "0")):
        assert cli("checkpoints", "gc", own_location, *wrong).code == 2


def test_gc_with_a_damaged_checkpoint(cli: Run, own_location: Path) -> None:
    """Catches: files deleted that an unreadable checkpoint may name."""
    (own_location / "checkpoints" / "000000000003" / "manifest").write_bytes(b"")
    plan = cli("checkpoints", "gc", own_location, "--json").json
    assert plan["unreadable"] == [3]
    assert all(path.startswith("claims/") for path in plan["files"])
    assert "cannot be read" in cli("checkpoints", "gc", own_location).out


def test_a_location_that_is_another_one(cli: Run, own_location: Path, tmp_path: Path) -> None:
    """Catches: one message for a path that is mistyped, empty, a file, or one level off."""
    home = tmp_path / "a" / "home"
    state = home / "state"
    shutil.copytree(own_location, state)
    for folder in ("empty", "query/offsets", "query/commits", "elsewhere/deep"):
        (home / folder).mkdir(parents=True)
    (home / "file").write_text("", encoding="utf-8")
    lonely = tmp_path / "b" / "lonely"
    lonely.mkdir(parents=True)
    for given, said in (
        (home / "stat", f"{home / 'stat'} does not exist: did you mean {state}?"),
        (home / "empty", f"{home / 'empty'} is empty: did you mean {state}?"),
        (home / "file", f"{home / 'file'} is a file, not a directory: did you mean {state}?"),
        (home, f"{home} is no location, but has 1 of them below it: did you mean {state}?"),
        (state / "checkpoints", f"{state / 'checkpoints'} is inside the location {state}: did you mean that?"),
        (state / "state" / "1", f"{state / 'state' / '1'} is inside the location {state}: did you mean that?"),
        (
            state / "savepoints" / "one",
            f"{state / 'savepoints' / 'one'} is inside the location {state}: did you mean that, with --savepoint one?",
        ),
        (home / "query", f"{home / 'query'} is Spark's own checkpoint of a query, not the location of a state backend"),
        (home / "elsewhere" / "deep", f"{home / 'elsewhere' / 'deep'} is empty: check the location"),
        (lonely, f"{lonely} is empty: check the location"),
    ):
        found = cli("checkpoints", "ls", given)
        assert found.code == 3 and said in found.err, (given, found.err)
        with pytest.raises(CheckpointCollectedError) as caught:
            CheckpointReader.open(given)
        assert said in str(caught.value)
        with pytest.raises(CheckpointCollectedError) as caught:
            CheckpointReader.open(given, savepoint="before")
        assert str(caught.value).startswith("there is no savepoint 'before': ") and said in str(caught.value)
