"""What a manifest may say, whoever wrote it: everything else is refused, at little cost."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from emberstate.checkpoint.manifest import envelope
from emberstate.checkpoint.manifest.catalogue import checkpoint_numbers, read_checkpoint, verify
from emberstate.checkpoint.manifest.invariants import open_manifest, parse_manifest
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.model import MAX_CHAIN_FILES, Manifest, plain
from emberstate.checkpoint.restore.operators import OperatorSpec, opened_operators
from emberstate.errors import CorruptionError, Place, RestoreRefusedError, StorageError
from tests.checkpoint.counting import GROUPS, KEYS, OPERATOR, counting_job
from tests.checkpoint.manifest.manifest_forgery import (
    SUM,
    Exploit,
    body,
    body_of,
    file,
    forge,
    manifest,
    operator,
    place,
    replace,
    sealed,
    slot,
)
from tests.checkpoint.stored import SharedMemory
from tests.raising import raising


def parsed(**changes: Any) -> Manifest:
    return parse_manifest(body(manifest(**changes)), "m")


def refused(expected: Place, **changes: Any) -> None:
    """Both ways to read a manifest refuse it, with these attributes."""
    expected = {**expected, "path": "checkpoints/000000000002/manifest"}
    for opened in (parse_manifest, lambda data, name: open_manifest(sealed(data), name)):
        with raising(CorruptionError, **expected) as found:
            opened(body(manifest(**changes)), "checkpoints/000000000002/manifest")
        assert len(str(found.value)) < 600


def with_files(*files: Any, groups: Any = (0, 7)) -> Any:
    return [operator(slots=[slot(groups, files)])]


def test_a_manifest_goes_through_its_file_and_back() -> None:
    """Catches: a field that is not written, or read as something else."""
    stamped = {"stamps": {"s": -5}}
    full = manifest(
        operators=[
            operator(
                slots=[
                    slot((0, 3), [file("a", "base", (0, 3)), file("b", groups=(1, 2), evolution=stamped)]),
                    slot((4, 7), [file("a", "base", (4, 7), place=place(offset=7))]),
                ],
                settled={
                    "decisions": {"drop_states": ["old"], "rename_fields": {"t": {"x.y": "z"}}},
                    "keep_states": ["kept"],
                },
            ),
            operator("other", [slot()], key_schema=["bigint", "decimal(10,2)"]),
        ],
        batch={"id": 7, "query": "", "source": '{"x":1}', "processing_time": -5, "watermark": 0, "max_event_time": 3},
        kind="savepoint",
    )
    found = parse_manifest(body(full), "m")
    assert open_manifest(found.to_bytes(), "m") == found
    assert body_of(found.to_bytes()) == json.loads(body(plain(found)))
    assert plain(found)["operators"][0]["slots"][0]["files"][1]["evolution"] == {"stamps": {"s": -5}}
    assert [p.path for p in found.file_refs()] == [
        "state/000001/a.arrow", "state/000001/b.arrow", "state/000001/a.arrow", "output/000001/o",
    ]  # fmt: skip
    assert found.operator("other") is found.operators[1] and found.operator("none") is None


# -- places ---------------------------------------------------------------------------------------------------

PATHS = [
    "../x", "state/../../x", "state/..", "/etc/passwd", "state//x", "./state/x", "state/./x", "state\\x",
    "state/a\\..\\b", "state/\x00", "state/a\nb", "state/" + "x" * 256, "state/" + "x/" * 300 + "y", "x", ".tmp/x",
    "claims/000001", "intents/1", "State/x", "C:/x", "file:///etc/passwd", "s3://other/x", "~/x", "state/\x7f",
]  # fmt: skip


@pytest.mark.reliability(7)
@pytest.mark.reliability(27)
@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_paths_that_lead_elsewhere(path: str) -> None:
    """Catches: a manifest that makes a reader open, or a collector delete, what is not a checkpoint's."""
    long = len(path) > 512
    at_fault: Place = {"field": "$.operators[0].slots[0].files[0].place.path"} if long else {"found": path[:200]}
    refused(at_fault, operators=with_files(file(place=place(path))))
    output = {"operator": "counts", "name": "main", "slot": 0, "rows": 1, "place": place(path)}
    refused({"field": "$.outputs[0].place.path"} if long else at_fault, outputs=[output])


@pytest.mark.reliability(27)
@pytest.mark.parametrize(
    "changes",
    [
        {"size": -1}, {"size": 2**63}, {"size": 2**70}, {"size": 1e3}, {"size": True}, {"size": "10"}, {"size": None},
        {"offset": -1}, {"offset": 10**30}, {"checksum": SUM[:-1]}, {"checksum": SUM.upper()}, {"checksum": SUM + "\n"},
        {"checksum": ""}, {"path": ""}, {"path": "\ud800"}, {"path": 5},
    ],
    ids=range(16),
)  # fmt: skip
def test_places_that_are_none(changes: dict[str, Any]) -> None:
    """Catches: sizes and checksums that are believed."""
    refused({}, operators=with_files(file(place=place(**changes))))


@pytest.mark.reliability(30)
def test_large_places_are_only_numbers() -> None:
    """Catches: arithmetic in 32 or 53 bits, and sizes that are allocated when they are read."""
    huge = place(size=2**41, offset=2**61)
    (found, *_) = parsed(operators=with_files(file(place=huge))).file_refs()
    assert (found.size, found.offset) == (2**41, 2**61)


# -- key groups and chains -------------------------------------------------------------------------------------


@pytest.mark.reliability(7)
@pytest.mark.parametrize(
    "slots",
    [
        [slot((0, 6))],
        [slot((1, 7))],
        [slot((0, 8))],
        [slot((0, 3)), slot((3, 7))],
        [slot((0, 3)), slot((5, 7))],
        [slot((4, 7)), slot((0, 3))],
        [slot((0, 7)), slot((0, 7))],
        [slot((7, 0))],
        [slot((0, 5)), slot((6, 5)), slot((6, 7))],
        [slot((0, 3)), slot((4, 7)), slot((8, 8))],
    ],
    ids=range(10),
)
def test_slots_that_do_not_cover_the_key_groups(slots: Any) -> None:
    """Catches: keys that no slot restores, or that two do."""
    refused({"operator": "counts", "option": "slots", "expected": 8}, operators=[operator(slots=slots)])


@pytest.mark.parametrize("groups", [(-1, 7), (0, 32768), (0, 2**63), (0,), (0, 1, 2), "07", None, (0.0, 7.0)], ids=str)
def test_key_groups_that_are_none(groups: Any) -> None:
    """Catches: numbers that are no key groups."""
    refused({}, operators=[operator(slots=[{**slot(), "groups": groups}])])
    refused({}, operators=with_files({**file(), "groups": groups}))


@pytest.mark.reliability(7)
@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([file("a"), file("b", "base")], {"found": "b"}),
        ([file("a", groups=(0, 3)), file("b", "base", (3, 7))], {"found": "b"}),
        ([file("a", "base"), file("b", "base")], {"found": "b"}),
        ([file("a"), file("a")], {"found": "a"}),
        ([file("a", groups=(0, 4)), file("a", groups=(4, 7))], {"found": "a"}),
        ([file("a"), file("b"), file("b", groups=(7, 7))], {"found": "b"}),
        ([file("a"), file("b", place=place("state/000001/a.arrow"))], {"found": ("state/000001/a.arrow", 0)}),
        ([file("a", groups=(4, 2))], {"expected": (0, 7), "found": (4, 2)}),
        ([file("a", kind="full")], {"field": "$.operators[0].slots[0].files[0].kind"}),
        ([file("a", evolution={"drop_states": "x"})], {"field": "$.operators[0].slots[0].files[0].evolution[...]"}),
        ([file("a", evolution={"drop_states": ["a/b"]})], {"operator": "counts"}),
        ([file("a", evolution={"later": []})], {"operator": "counts", "found": ("later",)}),
        ([file("a", evolution={"stamps": {"x": 2**63}})], {"operator": "counts"}),
        ([file("a", evolution={"rename_states": {"x": "timers/y"}})], {"operator": "counts", "state": "x"}),
    ],
    ids=range(14),
)
def test_chains_that_make_no_sense(files: Any, expected: Place) -> None:
    """Catches: rows applied twice, or a base that wipes out what came after it."""
    refused(expected, operators=with_files(*files))


def test_a_file_may_be_taken_for_different_key_groups() -> None:
    """Catches: a check that refuses what two changes of parallelism give."""
    parts = [file("a", groups=(4, 7)), file("b", groups=(4, 7)), file("a", groups=(0, 3)), file("b", groups=(0, 3))]
    parsed(operators=with_files(*parts))
    parsed(operators=with_files(file("d", groups=(0, 1)), file("b", "base", (2, 7)), file("e")))
    with raising(CorruptionError, path="m", operator="counts", checkpoint=2, expected=(0, 3), found=(2, 5)):
        parsed(operators=[operator(slots=[slot((0, 3), [file(groups=(2, 5))]), slot((4, 7))])])


@pytest.mark.parametrize(
    "changes",
    [
        {"max_parallelism": 0}, {"max_parallelism": 32769}, {"max_parallelism": 2**62}, {"slots": []}, {"slots": {}},
        {"key_schema": []}, {"key_schema": ["text"]}, {"key_schema": ["BIGINT"]}, {"key_schema": "string"},
        {"key_schema": ["decimal(99,3)"]}, {"key_schema": ["decimal(" + "9" * 480 + ",1)"]}, {"name": ""},
        {"name": "x" * 501}, {"settled": {"x": []}}, {"settled": []}, {"key_schema": ["string"] * 100_000},
    ],
    ids=range(16),
)  # fmt: skip
def test_operators_that_are_none(changes: dict[str, Any]) -> None:
    """Catches: a key schema or a number of key groups that is used before it is looked at."""
    refused({}, operators=[operator(**changes)])


def test_operators_of_one_name() -> None:
    """Catches: state of two operators that one of them gets."""
    refused({"operator": "counts"}, operators=[operator(), operator()])


# -- versions --------------------------------------------------------------------------------------------------


@pytest.mark.reliability(24)
def test_unknown_fields_are_ignored_at_every_depth() -> None:
    """Catches: a reader that cannot live with what a later writer adds."""

    def more(value: Any) -> Any:
        if isinstance(value, dict):
            return {**{name: more(part) for name, part in value.items()}, "later": {"deep": [1, "x", None, {}]}}
        return [more(part) for part in value] if isinstance(value, list) else value

    assert parse_manifest(body(more(manifest())), "m") == parsed()


@pytest.mark.reliability(24)
def test_an_unknown_requirement_is_refused() -> None:
    """Catches: a reader that goes on though the writer said that it must not."""
    with raising(RestoreRefusedError, r"0\.1\.0", path="m", expected=("parquet outputs",), found=("salt",)):
        parsed(requires=["salt"])
    # And before anything else is looked at, which may mean something else under that requirement.
    with raising(RestoreRefusedError, path="m", found=("salt",)):
        parsed(requires=["salt"], operators=[operator(max_parallelism=0)])
    assert parsed(requires=[]) == parsed()


# -- hostile ---------------------------------------------------------------------------------------------------


def texts(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where texts stand in plain data."""
    if isinstance(value, str):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for name, part in items for found in texts(part, (*path, name))]


@pytest.mark.reliability(26)
def test_a_pickle_in_any_text_is_never_run(tmp_path: Path) -> None:
    """Catches: a text of a manifest that reaches pickle, eval or a class hook."""
    job = counting_job()
    job.run(2)
    number = job.coordinator.latest.number
    before = body_of(job.storage.read(manifest_path(number)))
    marker = tmp_path / "executed"
    payloads = [
        pickle.dumps(Exploit(marker), protocol=0).decode("latin-1"),
        f"__import__('os').system('touch {marker}')",
        '{"py/object": "os.system"}',
    ]
    paths = texts(before)
    assert len(paths) > 20
    for path in paths:
        for payload in payloads:

            def change(plain: Any, path: Any = path, payload: str = payload) -> None:
                for name in path[:-1]:
                    plain = plain[name]
                plain[path[-1]] = payload

            replace(job.storage, manifest_path(number), sealed(before))
            forge(job.storage, number, change)
            try:
                found = read_checkpoint(job.storage, number)
                str(found.describe())
                verify(job.storage, found)
                counting_job(job.backend).close()
                job.storage.delete(manifest_path(number + 1))
            except (CorruptionError, RestoreRefusedError, StorageError):
                pass
    assert not marker.exists()
    job.close()


@pytest.mark.reliability(27)
def test_many_files_and_large_texts_cost_little() -> None:
    """Catches: lists whose length is found to be too large only after gigabytes were built."""
    many = MAX_CHAIN_FILES * 2
    one = body(file("@"))
    text = body(manifest(operators=with_files("@"))).replace(b'"@"', b",".join([one] * many))
    nests = b'{"x":[' + b"[]," * 10**6 + b"[]]}"
    lists = body(manifest(operators=with_files(file(evolution="@")))).replace(b'"@"', nests)
    deep = body(manifest(batch="@")).replace(b'"@"', b'{"a":' * 10**6)
    for hostile in (text, lists, deep):
        tracemalloc.start()
        with pytest.raises(CorruptionError):
            parse_manifest(hostile, "m")
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 8 * len(hostile) + 2**20, len(hostile)


@pytest.mark.reliability(27)
def test_a_million_files_are_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a manifest of any size that is read whole to find out that it is too large."""
    monkeypatch.setattr("emberstate.checkpoint.manifest.catalogue.MAX_BYTES", 2**20)
    storage = SharedMemory()
    files = b",".join([body(file("@"))] * 1_000_000)
    storage.write_new(manifest_path(1), sealed(files))
    storage.write_new(manifest_path(2), sealed(b"{}"))
    read = storage.statistics().bytes_read
    with raising(CorruptionError, path=manifest_path(1), expected=2**20):
        read_checkpoint(storage, 1)
    assert storage.statistics().bytes_read == read
    assert checkpoint_numbers(storage) == [1, 2]
    assert envelope.MAX_BYTES == 64 * 2**20


@pytest.mark.reliability(27)
def test_rescaling_into_too_many_files_is_refused_before_the_job_is_taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: an opening that is written and that no start can ever read again."""
    monkeypatch.setattr("emberstate.checkpoint.restore.operators.MAX_CHAIN_FILES", 20)
    job = counting_job(parallelism=4)
    job.run(8)
    claims = job.storage.list("claims")
    with raising(RestoreRefusedError, operator=OPERATOR, option="parallelism", expected=20):
        counting_job(job.backend, 1)
    assert job.storage.list("claims") == claims
    job.run(2)
    job.close()


def test_a_manifest_under_anothers_number() -> None:
    """Catches: a copied manifest that brings an old state back."""
    job = counting_job()
    job.run(2)
    number = job.coordinator.latest.number
    replace(job.storage, manifest_path(number), job.storage.read(manifest_path(number - 1)))
    with raising(CorruptionError, path=manifest_path(number), expected=number, found=number - 1):
        counting_job(job.backend)
    job.close()


def test_another_jobs_checkpoints() -> None:
    """Catches: two jobs in one location."""
    job = counting_job()
    job.run()
    forge(job.storage, job.coordinator.latest.number, lambda plain: plain.update(job="payments"))
    with raising(RestoreRefusedError, checkpoint=job.coordinator.latest.number, expected="job", found="payments"):
        counting_job(job.backend)
    job.close()


def test_a_spec_without_checkpoint_is_empty() -> None:
    """Catches: a first start that looks for files."""
    spec = OperatorSpec(name=OPERATOR, key_schema=KEYS, parallelism=3, max_parallelism=GROUPS)
    (found,) = opened_operators(SharedMemory(), None, [spec], "t", 0)
    assert [(chain.groups, chain.files) for chain in found.slots] == [((0, 2), ()), ((3, 5), ()), ((6, 7), ())]
