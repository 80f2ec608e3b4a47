"""`emberstate state` and `rescale`: what a checkpoint holds."""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import math
from pathlib import Path
from typing import Any

import click
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.backends import FsStateBackend
from emberstate.checkpoint.commit.coordinator import CheckpointCoordinator
from emberstate.checkpoint.read.plain_rows import plain_rows
from emberstate.checkpoint.read.reader import CheckpointReader
from emberstate.checkpoint.read.state_columns import StateColumns
from emberstate.checkpoint.restore.operators import OperatorSpec
from emberstate.cli.export_files import write_file
from emberstate.cli.keys import parse_key
from emberstate.codec.key_text import text_of_key
from emberstate.errors import CorruptionError
from emberstate.keygroups import KeySchema
from emberstate.storage.local import LocalStorage
from examples import session_windows
from tests.cli.cards import harness, pay
from tests.cli.conftest import Run
from tests.effort import examples

STATES = ("amounts", "best", "last", "mean", "shops", "timers/event-time timers", "timers/processing-time timers")


def test_ls(cli: Run, each_location: Path) -> None:
    """Catches: a state left out, or described as another."""
    found = cli("state", "ls", each_location, "--json").json
    assert {key: found[key] for key in ("job", "source", "number", "batch")} == {
        "job": "cards", "source": "checkpoint", "number": 4, "batch": 2
    }  # fmt: skip
    assert tuple(item["state"] for item in found["states"]) == STATES
    assert found["states"][4] == {
        "operator": "cards", "state": "shops", "kind": "map", "type": "int", "user_key": "str", "namespace": "str",
        "ttl": "1:00:00 of processing time", "codec": "msgspec",
    }  # fmt: skip
    counted = cli("state", "ls", each_location, "--count", "--json").json["states"]
    cells = [(item["entries"], item["cells"]) for item in counted]
    assert cells == [(22, 24), (22, 22), (22, 22), (22, 22), (22, 23), (22, 23), (0, 0)]


def test_get(cli: Run, each_location: Path) -> None:
    """Catches: a value of any kind of state shown as something else."""
    rows = {state: cli("state", "get", each_location, state, "ann", "--json").json["rows"] for state in STATES[:6]}
    assert rows == {
        "amounts": [{"namespace": "", "position": 0, "value": 3.5}, {"namespace": "", "position": 1, "value": 20.0}],
        "best": [{"namespace": "", "value": 20.0}],
        "last": [{"namespace": "", "value": {"shop": "books", "amount": "20.0", "tags": {"n": 1}}}],
        "mean": [{"namespace": "", "value": {"_0": 23.5, "_1": 2}}],
        "shops": [
            {"namespace": "", "user_key": shop, "value": 1, "stamp": "2026-01-01T00:00:00Z"}
            | {"expires": "2026-01-01T01:00:00Z", "expired": False}
            for shop in ("bakery", "books")
        ],
        "timers/event-time timers": [
            {"time": f"2026-03-01T12:0{minute}:00Z", "name": "quiet", "namespace": ""} for minute in (5, 6)
        ],
    }
    found = cli("state", "get", each_location, "best", "ann", "--json").json
    assert (found["key"], found["key_group"], found["state_kind"]) == ("ann", 11, "reducing")
    assert cli("state", "get", each_location, "best", "ann").out.split() == ["value", "20.0"]
    assert cli("state", "get", each_location, "best", "ann", "--checkpoint", "3").out.split() == ["value", "3.5"]


def test_get_nothing(cli: Run, location: Path) -> None:
    """Catches: a key without state that looks like one with; mistakes taken for it."""
    found = cli("state", "get", location, "best", "nobody")
    assert (found.code, found.out) == (1, "key nobody has nothing in reducing state 'best'\n")
    assert cli("state", "get", location, "best", "nobody", "--json").json["rows"] == []
    wrong = cli("state", "get", location, "nope", "ann")
    assert (wrong.code, "it has ['amounts', 'best'" in wrong.err) == (3, True)
    assert cli("state", "get", location, "best", "ann", "--operator", "nope").code == 3


def test_what_has_expired_is_called_so(cli: Run, tmp_path: Path) -> None:
    """Catches: an expired value that looks alive."""
    with harness(FsStateBackend(tmp_path)) as running:
        running.process(pay("ann", 1.0), pay("bob", 1.0))
        running.advance_processing_time("59 minutes")
        assert not cli("state", "get", tmp_path, "shops", "ann", "--json").json["rows"][0]["expired"]
        # All that one transaction cleans up is what it touches and a part of the rest: ask before it is over.
        running.advance_processing_time("61 minutes")
    rows = cli("state", "get", tmp_path, "shops", "ann", "--json").json["rows"]
    assert all(row["expired"] for row in rows)


def test_several_operators_must_be_told_apart(cli: Run, tmp_path: Path) -> None:
    """Catches: the state of one operator shown for another's."""
    specs = [OperatorSpec(name=name, key_schema=KeySchema(["string"])) for name in ("one", "two")]
    CheckpointCoordinator.open(LocalStorage(tmp_path), "job", specs)
    found = cli("state", "top", tmp_path)
    assert (found.code, "['one', 'two']: choose one by --operator" in found.err) == (2, True)
    assert cli("state", "top", tmp_path, "--operator", "two", "--json").json["operator"] == "two"


def test_top(cli: Run, location: Path) -> None:
    """Catches: bytes that are not those of the state; a largest key that is not the largest."""
    found = cli("state", "top", location, "-n", "5", "--json").json
    with CheckpointReader.open(location) as reader:
        sizes: dict[tuple[str, Any], int] = {}
        groups: dict[int, int] = {}
        for state in STATES:
            table = reader.table("cards", state)
            for _, entries in reader.scan("cards", table):
                for entry in entries:
                    cells = sum(len(c.user_key or b"") + len(c.value or b"") for c in entry.cells)
                    size = len(entry.key) + len(entry.namespace) + cells
                    sizes[state, table.key(entry)] = size
                    groups[entry.key_group] = groups.get(entry.key_group, 0) + size
    assert sum(item["live_bytes"] for item in found["states"]) == sum(sizes.values())
    assert [item["live_bytes"] for item in found["keys"]] == sorted(sizes.values(), reverse=True)[:5]
    assert all(sizes[item["state"], item["key"]] == item["live_bytes"] for item in found["keys"])
    assert {item["key_group"]: item["live_bytes"] for item in found["key_groups"]} == dict(
        sorted(groups.items(), key=lambda item: (-item[1], item[0]))[:5]
    )
    assert all(sum(item["states"].values()) == item["live_bytes"] for item in found["key_groups"])
    one = cli("state", "top", location, "--state", "best", "--json").json
    assert [item["state"] for item in one["states"]] == ["best"]


# -- export ---------------------------------------------------------------------------------------------------


def test_export(cli: Run, each_location: Path, tmp_path: Path) -> None:
    """Catches: rows or types that Parquet has otherwise than the checkpoint."""
    found = cli("state", "export", each_location, "--to", tmp_path / "out", "--json").json
    assert [item["state"] for item in found["files"]] == list(STATES)
    with CheckpointReader.open(each_location) as reader:
        for item in found["files"]:
            table = pq.read_table(item["file"])
            expected = reader.to_arrow("cards", item["state"])
            assert table.schema.equals(expected.schema) and table.to_pylist() == expected.to_pylist()
            assert item["rows"] == expected.num_rows
            about = {b"emberstate.job": b"cards", b"emberstate.checkpoint": b"4", b"emberstate.operator": b"cards"}
            assert about.items() <= (table.schema.metadata or {}).items()
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "amounts.parquet", "best.parquet", "last.parquet", "mean.parquet", "shops.parquet", "timers"
    ]  # fmt: skip


def test_export_overwrites_nothing(cli: Run, location: Path, tmp_path: Path) -> None:
    """Catches: a file that was there replaced; half a file left behind."""
    target = tmp_path / "best.parquet"
    found = cli("state", "export", location, "--to", target, "--state", "best")
    assert (found.code, pq.read_table(target).num_rows) == (0, 22)
    before = target.read_bytes()
    again = cli("state", "export", location, "--to", target, "--state", "best")
    assert (again.code, target.read_bytes()) == (3, before)
    assert "not overwritten" in again.err
    assert [path.name for path in tmp_path.iterdir()] == ["best.parquet"]


def test_export_in_every_format(cli: Run, each_location: Path, tmp_path: Path) -> None:
    """Catches: a format that loses or changes a value: an empty text, a missing one, bytes, decimals, records."""
    with CheckpointReader.open(each_location) as reader:
        for state in STATES:
            expected = json.loads(msgspec.json.encode(plain_rows(reader.to_arrow("cards", state))))
            for ending in ("json", "jsonl", "csv"):
                target = tmp_path / f"{state.replace('/', '-')}.{ending}"
                done = cli("state", "export", each_location, "--to", target, "--state", state, "--json").json
                assert [item["rows"] for item in done["files"]] == [len(expected)]
                text = target.read_text(encoding="utf-8")
                if ending == "json":
                    assert json.loads(text) == expected
                elif ending == "jsonl":
                    assert [json.loads(line) for line in text.splitlines()] == expected
                else:
                    assert [row["key"] for row in csv.DictReader(io.StringIO(text))] == [row["key"] for row in expected]
    assert cli("state", "export", each_location, "--to", tmp_path / "out", "--format", "csv").code == 0
    assert (tmp_path / "out" / "best.csv").read_bytes() == (tmp_path / "best.csv").read_bytes()


def test_hard_values_in_csv_and_json(tmp_path: Path) -> None:
    """Catches: values that CSV or JSON has no form for, written as null or as another value."""
    record = pa.struct([("b", pa.binary()), ("d", pa.decimal128(5, 2))])
    rows: list[dict[str, Any]] = [
        {"key": "", "f": math.nan, "r": {"b": b"\xff", "d": decimal.Decimal("1.50")}, "l": [math.inf, None]},
        {"key": 'a "quoted",\n line', "f": None, "r": None, "l": []},
        {"key": None, "f": -math.inf, "r": {"b": None, "d": None}, "l": None},
    ]
    schema = pa.schema([("key", pa.string()), ("f", pa.float64()), ("r", record), ("l", pa.list_(pa.float64()))])
    batches = [pa.RecordBatch.from_pylist(rows[:2], schema), pa.RecordBatch.from_pylist(rows[2:], schema)]
    for ending in (".csv", ".json", ".jsonl", ".parquet"):
        assert write_file(tmp_path / f"x{ending}", schema, batches, False) == 3
    assert (tmp_path / "x.csv").read_text(encoding="utf-8") == (
        '"key","f","r","l"\n'
        '"",nan,"{""b"":""/w=="",""d"":""1.50""}","[""Infinity"",null]"\n'
        '"a ""quoted"",\n line",,,"[]"\n'
        ',-inf,"{""b"":null,""d"":null}",\n'
    )
    expected = [
        {"key": "", "f": "NaN", "r": {"b": "/w==", "d": "1.50"}, "l": ["Infinity", None]},
        {"key": 'a "quoted",\n line', "f": None, "r": None, "l": []},
        {"key": None, "f": "-Infinity", "r": {"b": None, "d": None}, "l": None},
    ]
    assert json.loads((tmp_path / "x.json").read_bytes()) == expected
    assert [json.loads(line) for line in (tmp_path / "x.jsonl").read_bytes().splitlines()] == expected
    assert write_file(tmp_path / "none.json", schema, [], False) == 0
    assert json.loads((tmp_path / "none.json").read_bytes()) == []


def test_export_to_a_name_that_cannot_be(cli: Run, location: Path, tmp_path: Path) -> None:
    """Catches: a folder where a file was named; a file whose content is not what its ending says."""
    for name, more in {
        "all.csv": (),
        "best.xlsx": ("--state", "best"),
        "best.json": ("--state", "best", "--format", "csv"),
    }.items():
        done = cli("state", "export", location, "--to", tmp_path / name, *more)
        assert done.code in (2, 3) and list(tmp_path.iterdir()) == [], name
    (tmp_path / "v1.csv").mkdir()
    assert cli("state", "export", location, "--to", tmp_path / "v1.csv", "--state", "best").code == 0
    assert [path.name for path in (tmp_path / "v1.csv").iterdir()] == ["best.parquet"]


def test_export_replaces_only_what_is_complete(
    cli: Run, location: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches: a file that is replaced by half of another; --overwrite that does nothing."""
    target = tmp_path / "best.csv"
    target.write_text("mine", encoding="utf-8")

    def fail(*_: object) -> None:
        raise CorruptionError("a damaged file")

    with monkeypatch.context() as patched:
        patched.setattr(StateColumns, "batch", fail)
        assert cli("state", "export", location, "--to", target, "--state", "best", "--overwrite").code == 3
    assert target.read_text(encoding="utf-8") == "mine" and list(tmp_path.iterdir()) == [target]
    assert cli("state", "export", location, "--to", target, "--state", "best", "--overwrite").code == 0
    assert len(target.read_text(encoding="utf-8").splitlines()) == 23


def test_export_with_a_pin(cli: Run, own_location: Path, tmp_path: Path) -> None:
    """Catches: a pin that stays."""
    assert cli("state", "export", own_location, "--to", tmp_path / "out", "--pin").code == 0
    assert not any((own_location / "pins").iterdir())


# -- keys of a state ------------------------------------------------------------------------------------------


def test_state_keys(cli: Run, each_location: Path) -> None:
    """Catches: a key left out, twice, or with another's size; a cut that nobody is told of."""
    found = cli("state", "keys", each_location, "best", "--json").json
    with CheckpointReader.open(each_location) as reader:
        assert [item["key"] for item in found["keys"]] == list(reader.keys("cards", "best"))
    assert len(found["keys"]) == 22 and found["cut"] is False
    total = cli("state", "top", each_location, "--state", "best", "--json").json["states"][0]["live_bytes"]
    assert sum(item["live_bytes"] for item in found["keys"]) == total
    group = found["keys"][5]["key_group"]
    some = cli("state", "keys", each_location, "best", "--key-group", group, "--json").json["keys"]
    assert some == [item for item in found["keys"] if item["key_group"] == group]
    named = cli("state", "keys", each_location, "best", "--match", "card-1?", "--json").json["keys"]
    assert {item["text"] for item in named} == {f"card-1{digit}" for digit in range(10)}
    exact = cli("state", "keys", each_location, "best", "--limit", "22")
    assert (exact.code, exact.err) == (0, "")
    cut = cli("state", "keys", each_location, "best", "--limit", "21")
    assert len(cut.out.splitlines()) == 22 and "there are more" in cut.err
    assert cli("state", "keys", each_location, "best", "--limit", "21", "--json").json["cut"] is True
    assert cli("state", "keys", each_location, "nothing").code == 3
    assert cli("state", "keys", each_location, "best", "--key-group", "16").code == 3
    assert len(cli("state", "keys", each_location, "timers/event-time timers", "--json").json["keys"]) > 0


# -- keys -----------------------------------------------------------------------------------------------------

COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "string": st.text(st.characters(codec="utf-8")),
    "binary": st.binary(),
    "boolean": st.booleans(),
    "double": st.floats(allow_nan=False).map(lambda number: number + 0.0),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(datetime.UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal(10,2)": st.decimals(-(10**7), 10**7, places=2),
}


def typed(value: Any) -> str:
    """How a user would type a value."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value)


@settings(max_examples=examples(60))
@given(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3).flatmap(
    lambda names: st.tuples(st.just(names), st.tuples(*(COLUMNS[name] for name in names)))
))  # fmt: skip
def test_every_key_can_be_typed(case: tuple[list[str], tuple[Any, ...]]) -> None:
    """Catches: a key that cannot be asked for, or is taken for another."""
    names, values = case
    schema = KeySchema(names)
    expected = schema.normalise(values[0] if len(values) == 1 else values)
    text = typed(values[0]) if len(values) == 1 else json.dumps([typed(value) for value in values])
    assert parse_key(text, schema) == expected
    assert parse_key(text_of_key(expected), schema) == expected


def test_numbers_in_json_keys() -> None:
    """Catches: JSON numbers that lose digits or are refused."""
    schema = KeySchema(["bigint", "decimal(20,2)", "double", "boolean"])
    key = parse_key("[7, 123456789012345678.25, 1, true]", schema)
    assert key == (7, decimal.Decimal("123456789012345678.25"), 1.0, True)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x", ["bigint"]), ("1.5", ["bigint"]), ("maybe", ["boolean"]), ("xyz", ["binary"]), ("2024-13-01", ["date"]),
        ("2024-01-01T00:00:00", ["timestamp"]), ("nan", ["double"]), ("9999999999", ["decimal(5,2)"]),
        ("ann", ["string", "bigint"]), ('["ann"]', ["string", "bigint"]), ('["ann", null]', ["string", "bigint"]),
        (str(2**63), ["bigint"]), (f"[{10**400}, 1]", ["double", "bigint"]),
    ],
)  # fmt: skip
def test_keys_that_are_none(text: str, names: list[str]) -> None:
    """Catches: a mistyped key that is looked up as something else, or raises a traceback."""
    with pytest.raises(click.BadParameter):
        parse_key(text, KeySchema(names))


# -- rescale --------------------------------------------------------------------------------------------------


def test_rescale(cli: Run, location: Path) -> None:
    """Catches: slots that do not add up to the whole; a dry run that promises what a start refuses."""
    found = cli("rescale", location, "--parallelism", "3", "--dry-run", "--json").json
    assert [slot["key_groups"] for slot in found["slots"]] == ["0-5", "6-10", "11-15"]
    total = cli("state", "top", location, "--json").json["states"]
    assert sum(slot["live_bytes"] for slot in found["slots"]) == sum(item["live_bytes"] for item in total)
    assert (found["from"], found["to"], found["moved_key_groups"]) == (2, 3, 7)
    same = cli("rescale", location, "--parallelism", "2", "--dry-run", "--json").json
    assert same["moved_key_groups"] == 0
    assert cli("rescale", location, "--parallelism", "17", "--dry-run").code == 3
    told = cli("rescale", location, "--parallelism", "3")
    assert (told.code, "rescaling is a restart" in told.err) == (2, True)


# -- windows --------------------------------------------------------------------------------------------------


def test_windows(cli: Run, tmp_path: Path) -> None:
    """Catches: namespaces that are windows lost, or state of windows that cannot be rewritten."""
    start = datetime.datetime(2026, 5, 4, 9, tzinfo=datetime.UTC)
    with session_windows.harness(state_backend=FsStateBackend(tmp_path / "state")) as running:
        running.process(("ann", "/home", start), ("ann", "/shop", start + datetime.timedelta(minutes=50)))
    contents = "window-contents of merging windows"
    rows = cli("state", "get", tmp_path / "state", contents, "ann", "--json").json["rows"]
    assert [row["value"]["entry"] for row in rows] == ["/shop"]
    begin = int((start + datetime.timedelta(minutes=50)).timestamp() * 1_000_000)
    assert rows[0]["namespace"] == {"start": begin, "end": begin + 30 * 60 * 1_000_000}
    assert cli("savepoint", "create", tmp_path / "state", "one").code == 0
    rewritten = cli("savepoint", "rewrite", tmp_path / "state", "one", "--to-name", "two", "--max-parallelism", "7")
    assert rewritten.code == 0
    folder = tmp_path / "state"
    with (
        CheckpointReader.open(folder, savepoint="one") as one,
        CheckpointReader.open(folder, savepoint="two") as two,
    ):
        for stored in one.states("visits"):
            before, after = (reader.to_arrow("visits", stored.address).to_pylist() for reader in (one, two))
            assert sorted(before, key=str) == sorted(after, key=str)
