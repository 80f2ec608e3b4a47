"""`emberstate savepoint`: made offline, checked against a program, rewritten."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from emberstate.checkpoint.manifest.catalogue import read_savepoint
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.keygroups import KeySchema
from emberstate.storage.local import LocalStorage
from tests.cli.cards import Cards, harness, limits, pay
from tests.cli.commands.test_checkpoints import contents
from tests.cli.conftest import Run

KEYS = ["ann", "bob", *(f"card-{number}" for number in range(20))]
CARDS = "tests.cli.cards:Cards"
RENAMED = "tests.cli.cards:Renamed"


def start_from(source: Path, name: str, target: Path, max_parallelism: int, operator: str = "cards") -> None:
    """Begin a job with the state of a savepoint."""
    spec = OperatorSpec(name=operator, key_schema=KeySchema(["string"]), parallelism=2, max_parallelism=max_parallelism)
    CheckpointCoordinator.open(LocalStorage(target), operator, [spec], savepoint=(LocalStorage(source), name))


def states_of(folder: Path, function: Any, names: list[str], **options: Any) -> dict[str, Any]:
    """What a job that goes on from a location sees, for all keys."""
    with harness(FsStateBackend(folder), function, **options) as running:
        found = {f"{name}/{key}": running.state(name, key) for name in names for key in KEYS}
        timers = [(timer.key, timer.name, timer.time) for timer in running.timers()]
        running.process(pay("eve", 1.0))
        return {**found, "timers": sorted(timers)}


# -- create ---------------------------------------------------------------------------------------------------


def test_create(cli: Run, own_location: Path, tmp_path: Path) -> None:
    """Catches: a savepoint that is not the checkpoint; a claim or a pin left behind by making it."""
    before = contents(own_location)
    made = cli("savepoint", "create", own_location, "one", "--checkpoint", "3", "--json").json
    assert (made["name"], made["number"], made["batch"]) == ("one", 3, 1)
    new = {name for name, data in contents(own_location).items() if data is not None} - before.keys()
    assert new and all(name.startswith("savepoints/one/") for name in new)
    assert cli("checkpoints", "diff", own_location, "3", "savepoint:one").code == 0
    again = cli("savepoint", "create", own_location, "one")
    assert (again.code, "exists in" in again.err) == (3, True)
    other = tmp_path / "other"
    assert cli("savepoint", "create", own_location, "two", "--to", other).code == 0
    assert read_savepoint(LocalStorage(other), "two").number == 4
    assert cli("checkpoints", "verify", other, "--savepoint", "two").code == 0
    assert cli("checkpoints", "verify", other).code == 3  # there is no checkpoint there
    assert cli("savepoint", "create", own_location, "a/b").code == 3


def test_create_while_the_job_goes_on(cli: Run, tmp_path: Path) -> None:
    """Catches: making a savepoint that fences the job."""
    with harness(FsStateBackend(tmp_path)) as running:
        running.process(pay("ann", 1.0))
        assert cli("savepoint", "create", tmp_path, "one").code == 0
        running.process(pay("ann", 2.0))
        assert running.state("amounts", "ann") == [1.0, 2.0]


# -- restore-check --------------------------------------------------------------------------------------------


def test_restore_check(cli: Run, each_location: Path) -> None:
    """Catches: a verdict other than what a restore would do."""
    good = cli("savepoint", "restore-check", each_location, "--function", CARDS, "--json")
    assert (good.code, good.json["kind"], good.json["operator"]) == (0, "compatible", "cards")
    assert {state["kind"] for state in good.json["states"]} == {"compatible"}
    bad = cli("savepoint", "restore-check", each_location, "--function", RENAMED, "--json")
    refused = [state["name"] for state in bad.json["states"] if state["kind"] == "refused"]
    assert (bad.code, bad.json["kind"], refused) == (1, "refused", ["amounts", "best"])
    options = ["--drop-state", "amounts", "--rename", "best=highest"]
    told = cli("savepoint", "restore-check", each_location, "--function", RENAMED, *options, "--json")
    kinds = {state["name"]: state["kind"] for state in told.json["states"]}
    assert (told.code, told.json["kind"]) == (0, "migrates")
    assert (kinds["amounts"], kinds["highest"], kinds["extra"]) == ("dropped", "migrates", "new")
    kept = cli(
        "savepoint", "restore-check", each_location, "--function", RENAMED, "--keep-state", "amounts",
        "--keep-state", "best",
    )  # fmt: skip
    assert kept.code == 0 and "kept" in kept.out
    wide = cli("savepoint", "restore-check", each_location, "--function", CARDS, "--parallelism", "99")
    assert (wide.code, "99" in wide.out + wide.err) == (3, True)


def test_restore_check_finds_the_users_code(
    cli: Run, location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: code in the current directory that is not found; a traceback for what is the user's mistake."""
    (tmp_path / "my_job.py").write_text(
        "from tests.cli.cards import Cards\n"
        "class Needy(Cards):\n    def __init__(self, x): self.x = x\n"
        "made = Needy(1)\nmake = lambda: Needy(2)\nnumber = 7\n"
    )
    (tmp_path / "broken_job.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != os.fspath(tmp_path)])
    for name in ("my_job:made", "my_job:make"):
        assert cli("savepoint", "restore-check", location, "--function", name).code == 0, name
    for name, message in {
        "my_job:Needy": "name an object, or a function that makes one",
        "my_job:number": "expected a KeyedProcessFunction",
        "my_job:nothing": "AttributeError",
        "no_such_module:X": "ModuleNotFoundError",
        "broken_job:X": "ZeroDivisionError",
        "my_job": "write module:Class",
    }.items():
        found = cli("savepoint", "restore-check", location, "--function", name)
        assert (found.code, found.out) == (3, ""), name
        assert message in found.err and "Traceback" not in found.err, name
    for option in (["--rename", "x"], ["--rename-field", "a=b"], ["--rename", "a=b", "--rename", "a=c"]):
        assert cli("savepoint", "restore-check", location, "--function", CARDS, *option).code == 2
    fields = cli("savepoint", "restore-check", location, "--function", CARDS, "--rename-field", "last:x=y")
    assert (fields.code, "names no stored field" in fields.out) == (1, True)


# -- rewrite --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_parallelism", [None, 5, 64])
def test_a_job_goes_on_from_a_rewritten_savepoint(
    cli: Run, own_location: Path, tmp_path: Path, max_parallelism: int | None
) -> None:
    """Catches: any state that is lost or changed on the way into other key groups."""
    cli("savepoint", "create", own_location, "one")
    options = [] if max_parallelism is None else ["--max-parallelism", max_parallelism]
    made = cli("savepoint", "rewrite", own_location, "one", "--to-name", "two", *options, "--json")
    assert (made.code, made.json["name"]) == (0, "two")
    assert ("are needed meanwhile" in made.err) == (max_parallelism is not None)
    assert cli("checkpoints", "verify", own_location, "--savepoint", "two").code == 0
    groups = max_parallelism or 16
    start_from(own_location, "two", tmp_path / "new", groups)
    names = ["last", "amounts", "shops", "best", "mean"]
    found = states_of(tmp_path / "new", Cards(), names, max_parallelism=groups)
    assert found == states_of(own_location, Cards(), names)
    assert found["amounts/ann"] == [3.5, 20.0] and len(found["timers"]) == 23


def test_rewrite_names_and_drops(cli: Run, own_location: Path, tmp_path: Path) -> None:
    """Catches: a rename or drop that reaches the wrong state, or leaves bytes of it."""
    cli("savepoint", "create", own_location, "one")
    made = cli(
        "savepoint", "rewrite", own_location, "one", "--to-name", "two", "--to", tmp_path / "there",
        "--drop-state", "amounts", "--rename-state", "best=highest", "--rename-operator", "cards=people",
    )  # fmt: skip
    assert made.code == 0 and made.err == ""
    states = [
        item["state"] for item in cli("state", "ls", tmp_path / "there", "--savepoint", "two", "--json").json["states"]
    ]
    assert states == ["highest", "last", "mean", "shops", "timers/event-time timers", "timers/processing-time timers"]
    start_from(tmp_path / "there", "two", tmp_path / "new", 16, "people")
    found = cli("savepoint", "restore-check", tmp_path / "new", "--function", RENAMED)
    assert found.code == 0
    with CheckpointReader.open(tmp_path / "new") as reader:
        assert reader.operators == ("people",)
        values = {row["key"]: row["value"] for row in reader.to_arrow("people", "highest").to_pylist()}
    with CheckpointReader.open(own_location) as reader:
        assert values == {row["key"]: row["value"] for row in reader.to_arrow("cards", "best").to_pylist()}


def test_rewrite_refuses(cli: Run, own_location: Path) -> None:
    """Catches: a mistake that becomes a savepoint, or leaves files."""
    cli("savepoint", "create", own_location, "one")
    before = contents(own_location)
    for options, code in (
        (["--to-name", "one"], 3),
        (["--to-name", "a b"], 3),
        (["--to-name", "two", "--drop-state", "nope"], 3),
        (["--to-name", "two", "--rename-state", "best=last"], 3),
        (["--to-name", "two", "--rename-operator", "nope=x"], 3),
        (["--to-name", "two", "--operator", "nope"], 3),
        (["--to-name", "two", "--max-parallelism", "40000"], 3),
        (["--to-name", "two", "--max-parallelism", "0"], 2),
        (["--to-name", "two", "--rename-state", "best"], 2),
        ([], 2),
    ):
        found = cli("savepoint", "rewrite", own_location, "one", *options)
        assert (found.code, found.out) == (code, ""), options
        assert "Traceback" not in found.err
    assert {name for name, data in contents(own_location).items() if data is not None} == {
        name for name, data in before.items() if data is not None
    }
    assert cli("savepoint", "rewrite", own_location, "nope", "--to-name", "two").code == 3


def test_the_golden_verdict(cli: Run, location: Path) -> None:
    """Catches: a change of the JSON that scripts rely on."""
    found = cli("savepoint", "restore-check", location, "--function", RENAMED, "--json").json
    found["states"] = [state for state in found["states"] if state["name"] in ("amounts", "extra")]
    assert json.dumps(found) == json.dumps(
        {
            "job": "cards",
            "source": "checkpoint",
            "number": 4,
            "batch": 2,
            "operator": "cards",
            "function": RENAMED,
            "kind": "refused",
            "problems": [],
            "states": [
                {
                    "name": "amounts",
                    "kind": "refused",
                    "fields": [],
                    "reason": "it is stored and not declared",
                    "what_to_do": "declare it, or decide: drop_states=['amounts'] or keep_states=['amounts']",
                },
                {"name": "extra", "kind": "new", "fields": [], "reason": "", "what_to_do": ""},
            ],
        }
    )


def test_broadcast_state_follows_its_operator(cli: Run, tmp_path: Path) -> None:
    """Catches: broadcast state spread over key groups, left behind by a rename, or taken for an operator to choose."""
    source, target = tmp_path / "source", tmp_path / "target"
    with limits(FsStateBackend(source)) as running:
        running.process_broadcast({"limit": 5.0})
        running.process(*[{"card": card, "amount": 9.0} for card in KEYS])
    checked = cli("savepoint", "restore-check", source, "--function", "tests.cli.cards:Limits", "--json").json
    assert (checked["operator"], checked["kind"]) == ("limits", "compatible")
    assert {state["name"] for state in checked["states"]} >= {"above", "limits"}
    assert cli("savepoint", "create", source, "one").code == 0
    options = ["--max-parallelism", "64", "--rename-operator", "limits=caps"]
    assert cli("savepoint", "rewrite", source, "one", "--to-name", "two", *options).code == 0
    saved = read_savepoint(LocalStorage(source), "two")
    assert {operator.name: operator.max_parallelism for operator in saved.operators} == {
        "caps": 64,
        "caps/broadcast": 1,
    }
    keys = KeySchema(["string"])
    specs = [
        OperatorSpec(name="caps", key_schema=keys, parallelism=2, max_parallelism=64),
        OperatorSpec(name="caps/broadcast", key_schema=keys, max_parallelism=1),
    ]
    CheckpointCoordinator.open(LocalStorage(target), "caps", specs, savepoint=(LocalStorage(source), "two"))
    with limits(FsStateBackend(target), max_parallelism=64, name="caps") as running:
        running.process({"card": "ann", "amount": 9.0})
        assert running.broadcast_state("limits") == {"all": 5.0}
        assert [running.state("above", card) for card in ("ann", "bob")] == [2, 1]


# -- ls, describe, rm -----------------------------------------------------------------------------------------


def test_ls_and_describe(cli: Run, own_location: Path) -> None:
    """Catches: sizes, names or states that are another savepoint's; a damaged one that hides the others."""
    assert cli("savepoint", "ls", own_location).out.startswith("there is no savepoint in")
    assert cli("savepoint", "create", own_location, "one", "--checkpoint", "3").code == 0
    assert cli("savepoint", "create", own_location, "two").code == 0
    manifest = own_location / "savepoints" / "two" / "manifest"
    sound = manifest.read_bytes()
    found = cli("savepoint", "ls", own_location, "--json").json["savepoints"]
    for item in found:
        folder = own_location / "savepoints" / item["name"]
        assert item["retained_bytes"] == sum(file.stat().st_size for file in folder.iterdir())
        assert item["stored_bytes"] == item["retained_bytes"] - (folder / "manifest").stat().st_size
    assert [(item["name"], item["job"], item["number"], item["batch"]) for item in found] == [
        ("one", "cards", 3, 1),
        ("two", "cards", 4, 2),
    ]
    described = cli("savepoint", "describe", own_location, "one", "--json").json
    assert described == {**described, **{name: value for name, value in found[0].items() if name != "problem"}}
    assert described["operators"] == [
        {"name": "cards", "key_schema": ["string"], "parallelism": 2, "max_parallelism": 16}
    ]
    assert {state["state"] for state in described["states"]} >= {"last", "amounts", "shops", "best", "mean"}
    manifest.write_bytes(sound[:-1])
    one, two = cli("savepoint", "ls", own_location).out.splitlines()[1:]
    assert "damaged" not in one and "two" in two and "damaged" in two
    assert cli("savepoint", "describe", own_location, "two").code == 3


def test_rm_deletes_one_savepoint_and_nothing_else(
    cli: Run, own_location: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: files of a checkpoint or of another savepoint deleted; a savepoint deleted though the answer was no."""
    before = contents(own_location)
    assert cli("savepoint", "create", own_location, "one").code == 0
    with_one = contents(own_location)
    assert cli("savepoint", "create", own_location, "ones").code == 0
    with_both = contents(own_location)
    monkeypatch.setattr(sys, "stdin", io.StringIO("n\n"))
    refused = cli("savepoint", "rm", own_location, "ones")
    assert (refused.code, contents(own_location)) == (3, with_both)
    assert "checkpoint 4, savepoint one" in refused.err
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert cli("savepoint", "rm", own_location, "ones").code == 0
    assert files(contents(own_location)) == files(with_one)
    assert cli("savepoint", "rm", own_location, "ones", "--yes").code == 3
    assert cli("savepoint", "rm", own_location, "../checkpoints", "--yes").code == 3
    assert files(contents(own_location)) == files(with_one)
    assert cli("savepoint", "rm", own_location, "one", "--yes", "--json").json["deleted"] is True
    assert files(contents(own_location)) == files(before)
    assert cli("checkpoints", "verify", own_location, "--all").code == 0


def files(found: dict[str, Any]) -> dict[str, Any]:
    """Without folders: an empty one means nothing."""
    return {name: data for name, data in found.items() if data is not None}


def test_rm_keeps_the_last_state(cli: Run, own_location: Path, tmp_path: Path) -> None:
    """Catches: the last copy of a state deleted in passing, where there is no checkpoint, or only a damaged one."""
    archive = tmp_path / "archive"
    for name in ("one", "two"):
        assert cli("savepoint", "create", own_location, name, "--to", archive).code == 0
    assert cli("savepoint", "rm", archive, "two", "--yes").code == 0
    kept = contents(archive)
    assert (cli("savepoint", "rm", archive, "one", "--yes").code, contents(archive)) == (3, kept)
    assert cli("savepoint", "create", own_location, "only").code == 0
    newest = own_location / "checkpoints" / "000000000004" / "manifest"
    newest.write_bytes(newest.read_bytes()[:-1])
    assert cli("savepoint", "rm", own_location, "only", "--yes").code == 3
    assert read_savepoint(LocalStorage(own_location), "only").number == 4
    assert cli("savepoint", "rm", archive, "one", "--yes", "--last").code == 0


def test_rm_leaves_what_another_process_writes(own_location: Path, cli: Run) -> None:
    """Catches: files of a savepoint that is being made under the name of one that is being deleted."""
    assert cli("savepoint", "create", own_location, "one").code == 0
    begun = own_location / "savepoints" / "one" / "abc-0"
    begun.write_bytes(b"written, and not yet named by a manifest")
    assert cli("savepoint", "rm", own_location, "one", "--yes").code == 0
    assert [path.name for path in begun.parent.iterdir()] == ["abc-0"]
