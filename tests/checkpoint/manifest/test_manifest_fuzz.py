"""Manifests changed at random under checksums that fit, or that nobody compares: our errors, or a sound
manifest, and nothing else."""

from __future__ import annotations

import contextlib
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.manifest.catalogue import verify
from emberstate.checkpoint.manifest.envelope import parse
from emberstate.checkpoint.manifest.intent import Intent
from emberstate.checkpoint.manifest.invariants import parse_manifest
from emberstate.checkpoint.manifest.layout import manifest_path
from emberstate.checkpoint.manifest.model import Holder, Manifest
from emberstate.checkpoint.manifest.open_files import open_state_file, read_ref
from emberstate.errors import CorruptionError, RestoreRefusedError
from emberstate.storage.checksums import checksum
from emberstate.storage.paths import is_path
from tests.checkpoint.counting import COUNTING, counting_job
from tests.checkpoint.driver import Job
from tests.checkpoint.manifest.manifest_forgery import body, copied, file, forge, manifest, operator, place, slot
from tests.checkpoint.stored import SharedMemory
from tests.effort import examples
from tests.raising import raising

RICH = manifest(
    operators=[
        operator(
            slots=[
                slot((0, 3), [file("a", "base", (0, 3)), file("b", groups=(1, 2), evolution={"stamps": {"s": 5}})]),
                slot((4, 7), [file("c", place=place("checkpoints/000000000002/bundle-x", offset=7), groups=(4, 7))]),
            ],
            settled={"decisions": {"drop_states": ["old"]}, "keep_states": []},
        )
    ]
)


def outcome(data: bytes) -> Manifest | None:
    """The manifest, checked by other means than its own; None if it was refused."""
    try:
        found = parse_manifest(data, "m")
    except (CorruptionError, RestoreRefusedError) as error:
        assert len(str(error)) < 1000
        return None
    # Every field has its type, at every depth: converting plain data checks what building objects does not.
    assert msgspec.convert(msgspec.to_builtins(found), Manifest) == found
    for op in found.operators:
        owned = [group for chain in op.slots for group in range(chain.groups[0], chain.groups[1] + 1)]
        assert owned == list(range(op.max_parallelism))
    for somewhere in found.file_refs():
        assert is_path(somewhere.path) and somewhere.path.split("/")[0] in (
            "state", "output", "checkpoints", "savepoints",
        )  # fmt: skip
    return found


@pytest.mark.reliability(6)
def test_every_flipped_bit_of_a_body_without_a_checksum() -> None:
    """Catches: a parser that is safe only because checksums shield it."""
    data = body(RICH)
    assert outcome(data) is not None
    accepted = 0
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            accepted += outcome(bytes(damaged)) is not None
    assert 0 < accepted < 4 * len(data)  # many texts may be any


@pytest.mark.reliability(6)
def test_every_truncation_of_a_body_without_a_checksum() -> None:
    """Catches: half a JSON text that is taken for a whole one."""
    data = body(RICH)
    for length in range(len(data)):
        assert outcome(data[:length]) is None
        assert outcome(data[length + 1 :]) is None


@pytest.mark.reliability(6)
def test_random_bytes_in_claims_and_intents() -> None:
    """Catches: another error than ours from the smaller files."""
    job = counting_job()
    job.run()
    rng = random.Random(11)
    cases: list[tuple[str, Any]] = [("claims", Holder), ("intents", Intent)]
    for folder, type_ in cases:
        (path,) = job.storage.list(folder)
        data = job.storage.read(path).partition(b"\n")[2]
        parse(data, type_, path)
        for _ in range(5000):
            damaged = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            try:
                found = parse(bytes(damaged), type_, path)
            except CorruptionError:
                continue
            assert msgspec.convert(msgspec.to_builtins(found), type_) == found
    job.close()


# -- structure-aware --------------------------------------------------------------------------------------------


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every position in plain data."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for name, part in items for found in places_in(part, (*path, name)))]


EVERYWHERE = places_in(RICH)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([2**63, -(2**63) - 1, 2**62, 2**62 + 1, 32768, 10**400, 1e300, -0.0, 1.5])
    | st.text(max_size=20)
    | st.sampled_from(["../x", "/etc/passwd", "state/x", "base", "delta", "\x00", "x" * 600, "\ud800", "0" * 32]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=10,
)


class Twice:
    """A dict whose keys come twice in the text, with different values."""

    def __init__(self, value: dict[str, Any], other: Any) -> None:
        self.value, self.other = value, other


def dumped(value: Any) -> str:
    """JSON, with what `json` does not write: keys that come twice."""
    if isinstance(value, Twice):
        pairs = [f"{json.dumps(k)}:{dumped(v)},{json.dumps(k)}:{dumped(value.other)}" for k, v in value.value.items()]
        return "{" + ",".join(pairs) + "}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(k)}:{dumped(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(dumped, value)) + "]"
    return json.dumps(value)


@st.composite
def changed_manifests(draw: st.DrawFn) -> bytes:
    """The manifest with one to three changes: wrong types, huge numbers, missing and double keys, deep nests."""
    plain = json.loads(json.dumps(RICH))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(EVERYWHERE[1:]))
        parent = plain
        try:
            for name in path[:-1]:
                parent = parent[name]
            old = parent[path[-1]]
        except (KeyError, IndexError, TypeError, AttributeError):
            continue  # an earlier change has taken it away
        how = draw(st.sampled_from(["replace", "remove", "copy", "nest", "twice"]))
        if how == "replace":
            parent[path[-1]] = draw(json_values)
        elif how == "remove":
            del parent[path[-1]]
        elif how == "copy" and isinstance(parent, list):
            parent.insert(draw(st.integers(0, len(parent))), old)
        elif how == "nest":
            for _ in range(draw(st.sampled_from([1, 5, 200]))):
                old = [old] if draw(st.booleans()) else {"x": old}
            parent[path[-1]] = old
        elif how == "twice" and isinstance(old, dict):
            parent[path[-1]] = Twice(old, draw(json_values))
    return dumped(plain).encode("utf-8", "surrogatepass")


@pytest.mark.reliability(6)
@pytest.mark.reliability(27)
@settings(max_examples=examples(300))
@given(changed_manifests())
def test_manifests_of_any_structure(data: bytes) -> None:
    """Catches: a wrong type, number or nest in any place that raises something else, or is taken over."""
    outcome(data)


# -- files as a manifest names them -----------------------------------------------------------------------------


def a_checkpoint() -> tuple[Job, Manifest, Any]:
    job = counting_job(parallelism=2)
    job.slot(1)._inline_bytes = 0  # so that there are bundles and state files
    job.run(6)
    return job, job.coordinator.latest, job.content()


@pytest.mark.reliability(5)
def test_flipped_bits_of_files_that_a_manifest_names() -> None:
    """Catches: damage to a bundle or state file that a restore does not notice."""
    job, latest, _ = a_checkpoint()
    storage = job.storage
    assert isinstance(storage, SharedMemory)
    files = [named for chain in latest.operators[0].slots for named in chain.files]
    assert len({named.place.path.split("/")[0] for named in files}) == 2  # bundles and state files
    rng = random.Random(3)
    for named in files:
        data = storage._files[named.place.path]
        for position in rng.sample(range(named.place.offset, named.place.offset + named.place.size), 150):
            damaged = bytearray(data)
            damaged[position] ^= 1 << rng.randrange(8)
            storage._files[named.place.path] = bytes(damaged)
            with raising(CorruptionError, path=named.place.path, expected=(named.place.size, named.place.checksum)):
                open_state_file(storage, named)
            with pytest.raises(CorruptionError):
                read_ref(storage, named.place)
        problems = verify(storage, latest).problems
        assert len(problems) == 1 and problems[0].startswith(named.place.path)
        storage._files[named.place.path] = data
    assert verify(storage, latest).problems == ()
    job.close()


@pytest.mark.reliability(5)
def test_flipped_bits_of_large_files_are_found_by_the_seal_and_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches: a large file, of which only parts are read, whose parts nobody compares."""
    monkeypatch.setattr("emberstate.checkpoint.manifest.open_files.WHOLE_BYTES", 0)
    job, latest, _ = a_checkpoint()
    storage = job.storage
    assert isinstance(storage, SharedMemory)
    named = latest.operators[0].slots[0].files[0]
    data = storage._files[named.place.path]
    good = [batch for _, batch in open_state_file(storage, named).batches()]
    for position in range(named.place.offset, named.place.offset + named.place.size):
        damaged = bytearray(data)
        damaged[position] ^= 1 << (position % 8)
        storage._files[named.place.path] = bytes(damaged)
        try:
            found = [batch for _, batch in open_state_file(storage, named).batches()]
        except CorruptionError as error:
            assert named.place.path in str(error)
        else:
            assert found == good  # the file's beginning, which says nothing that its end does not
    job.close()


@pytest.mark.reliability(6)
def test_random_damage_with_the_checksums_made_to_fit() -> None:
    """Catches: state files whose content is trusted because the manifest's checksum fits."""
    job, latest, content = a_checkpoint()
    rng = random.Random(5)
    keys = set(content)
    outcomes = {"refused": 0, "restored": 0}
    for _ in range(30):
        backend = copied(job.storage)
        storage = backend.storage
        assert isinstance(storage, SharedMemory)

        def damage(plain: Any, storage: SharedMemory = storage) -> None:
            chain = rng.choice(plain["operators"][0]["slots"])
            found = rng.choice(chain["files"])
            where = found["place"]
            start = where.get("offset", 0)
            data = bytearray(storage._files[where["path"]])
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(start, start + where["size"])] = rng.randrange(256)
            storage._files[where["path"]] = bytes(data)
            part = bytes(data[start : start + where["size"]])
            where["checksum"] = checksum(part)
            with contextlib.suppress(CorruptionError, RestoreRefusedError):
                found["seal"] = StateFileReader.of_bytes(part).seal

        forge(storage, latest.number, damage)
        again = counting_job(backend, 2)
        transaction = again.begin()
        try:
            for task in transaction.tasks:
                assert set(COUNTING.content(again.start(task).backend)) <= keys
            outcomes["restored"] += 1
        except (CorruptionError, RestoreRefusedError):
            outcomes["refused"] += 1
        again.close()
    assert outcomes["refused"] > 15, outcomes
    assert manifest_path(latest.number) in job.storage.list("checkpoints")
    job.close()
