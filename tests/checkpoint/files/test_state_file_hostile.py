"""Files made to do harm: they cost little, run nothing, and end in our error."""

from __future__ import annotations

import os
import pickle
import struct
import tracemalloc
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from emberstate.checkpoint.files.batches import SCHEMA, write_message
from emberstate.checkpoint.files.reader import StateFileReader
from emberstate.checkpoint.files.writer import BaseWriter
from emberstate.checkpoint.restore.load import restore
from emberstate.codec import pickle_codec
from emberstate.errors import CorruptionError, Place, RestoreRefusedError
from emberstate.heap.backend import HeapKeyedStateBackend
from emberstate.keygroups import KeySchema
from emberstate.state.descriptors import MapStateDescriptor, ValueStateDescriptor
from tests.checkpoint.files.state_file_forgery import STR, declared, file_of, metadata, opened, state
from tests.raising import raising

# -- sizes and places ----------------------------------------------------------------------------------------


def one_row(value: bytes) -> pa.RecordBatch:
    columns: list[Any] = [[0], [0], [b"\xa1a"], [b"\xa0"], [1], [None], [value], [None]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@pytest.mark.reliability(27)
def test_a_decompression_bomb_does_not_go_off() -> None:
    """Catches: Arrow allocating what a buffer declares, before anybody has looked at the number."""
    bomb, _ = write_message(one_row(bytes(64 * 1024 * 1024)))
    assert len(bomb) < 100_000
    data = file_of(batches=[bomb], entries=[[0, 0, 1, zlib.crc32(bomb)]])
    allocated = pa.total_allocated_bytes()
    with raising(CorruptionError, path="hostile", option="batch_bytes", expected=2**20):
        list(opened(data, batch_bytes=2**20).batches())
    assert pa.total_allocated_bytes() - allocated < 2**20
    assert len(list(opened(data).batches())) == 1


@pytest.mark.reliability(27)
@pytest.mark.parametrize("declared_size", [2**63 - 1, -(2**63), -2, 2**40, 2**31, 10**9 + 2**30])
def test_a_buffer_that_declares_a_huge_size(declared_size: int) -> None:
    """Catches: 2^63 in a length field that overflows, goes negative or is allocated."""
    message, length = write_message(one_row(b"\xa1x" * 1000))
    changed = bytearray(message)
    place = changed.index(struct.pack("<q", 2000) + b"\x28\xb5\x2f\xfd", length)  # a zstd frame's size
    struct.pack_into("<q", changed, place, declared_size)
    data = file_of(batches=[bytes(changed)], entries=[[0, 0, 1, zlib.crc32(changed)]])
    with pytest.raises(CorruptionError):
        list(opened(data).batches())


@pytest.mark.reliability(27)
def test_every_number_of_a_batch_header_set_to_extremes() -> None:
    """Catches: an offset, length or count in the Arrow metadata that is used before it is checked."""
    message, length = write_message(one_row(b"\xa1x"))
    offset = opened(file_of(batches=[message]))._blocks[0][0]
    blocks = [(offset, length, len(message) - length)]
    tracemalloc.start()
    for place in range(0, length - 8, 4):
        for extreme in (2**63 - 1, -(2**63), -1, 2**32 - 1, 2**31, 0, 1, 2**40):
            changed = bytearray(message)
            struct.pack_into("<q", changed, place, extreme)
            data = file_of(batches=[bytes(changed)], blocks=blocks, entries=[[0, 0, 1, zlib.crc32(changed)]])
            try:
                batches = list(opened(data, batch_bytes=2**20).batches())
            except CorruptionError:
                continue
            assert batches[0][1].num_rows == 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * 2**20


@pytest.mark.reliability(27)
@pytest.mark.parametrize(
    "entries",
    [
        [[0, 0, 0, 0]],
        [[0, 0, -1, 0]],
        [[0, 0, 2**63, 0]],
        [[3, 2, 1, 0]],
        [[0, 4, 1, 0]],
        [[-1, 0, 1, 0]],
        [[0, 0, 1]],
        [[0, 0, 1, "x"]],
        [[0, 0, True, 0]],
        [7],
        {},
        [],
        [[0, 0, 1, 0], [0, 0, 1, 0]],
    ],
    ids=range(13),
)
def test_an_index_that_makes_no_sense(entries: Any) -> None:
    """Catches: rows or groups out of any range; more or fewer batches than there are."""
    batch, _ = write_message(one_row(b"\xa1x"))
    with pytest.raises(CorruptionError):
        list(opened(file_of(batches=[batch], entries=entries)).batches())


@pytest.mark.reliability(27)
@pytest.mark.parametrize(
    "shift",
    [(8, 0, 0), (-8, 0, 0), (0, 8, -8), (0, 0, 8), (0, 0, -8), (2**62, 0, 0), (0, -8, 8), (-(2**62), 0, 0)],
)
def test_blocks_that_overlap_or_leave_the_file(shift: tuple[int, int, int]) -> None:
    """Catches: negative, overlapping or far offsets that become reads."""
    batch, length = write_message(one_row(b"\xa1x"))
    good = opened(file_of(batches=[batch]))
    offset = good._blocks[0][0]
    block = (offset + shift[0], length + shift[1], len(batch) - length + shift[2])
    data = file_of(batches=[batch], blocks=[block], entries=[[0, 0, 1, zlib.crc32(batch)]])
    reads: list[tuple[int, int]] = []

    def read_range(start: int, size: int) -> bytes:
        reads.append((start, size))
        return data[start : start + size]

    if shift[1] + shift[2] == 0 and shift[0] == 0:
        assert len(list(StateFileReader(read_range, len(data)).batches())) == 1  # their sum is what counts
    else:
        with pytest.raises(CorruptionError):
            StateFileReader(read_range, len(data))
    assert all(0 <= start <= start + size <= len(data) for start, size in reads)


def test_an_error_keeps_what_it_says_beside_the_file() -> None:
    """Catches: a reader that adds the file's name to an error and loses the error's own attributes."""
    message, _ = write_message(one_row(b"\xa1x"))
    data = file_of(batches=[message], entries=[[0, 0, 1, 7]])
    with raising(CorruptionError, path="hostile", expected=7, found=zlib.crc32(message)):
        list(opened(data).batches())
    with raising(RestoreRefusedError, path="hostile", found=("salt",)):
        opened(file_of(metadata(requires=["salt"])))


@pytest.mark.reliability(6)
@pytest.mark.parametrize("length", [0, 1, 15, -1, -(2**31), 2**31 - 1])
def test_a_footer_length_that_makes_no_sense(length: int) -> None:
    """Catches: a footer length believed."""
    data = file_of()
    with raising(CorruptionError, path="hostile", option="footer_bytes", found=length):
        opened(data[:-10] + struct.pack("<i", length) + data[-6:])


def test_an_arrow_file_of_somebody_else_is_refused() -> None:
    """Catches: any Arrow file taken for a state file."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, SCHEMA) as writer:
        writer.write_batch(one_row(b"\xa1x"))
    with raising(CorruptionError, "footer", path="hostile"):
        opened(sink.getvalue().to_pybytes())


# -- what never runs -----------------------------------------------------------------------------------------


class Exploit:
    """Pickled, it is a command to run."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch '{self.marker}'",)


@pytest.mark.reliability(26)
@pytest.mark.parametrize("place", ["key", "namespace", "user key", "value"])
@pytest.mark.parametrize("codec", ["msgspec", "pickle"])
def test_a_pickle_is_never_run(place: str, codec: str, tmp_path: Path) -> None:
    """Catches: bytes of a file that reach pickle without being asked for by name, or past the allow-list."""
    marker = tmp_path / "executed"
    payload = pickle.dumps(Exploit(marker))
    cells: dict[str, Any] = {
        "key": b"\xa1a",
        "namespace": b"\xa0",
        "user key": b"\xa1u",
        "value": b"\xa1v",
        place: payload,
    }
    group = KeySchema.from_python(str).key_group("a", 4)
    row = (group, 0, cells["key"], cells["namespace"], 3, cells["user key"], cells["value"], None)
    columns = [[cell] for cell in row]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    message, _ = write_message(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    stored = state("map", kind="map", user_key=STR, codec=codec)
    if codec == "pickle":
        stored["type"] = {"kind": "pickle", "name": "object"}
    data = file_of(metadata(states=[stored]), [message], entries=[[group, group, 1, zlib.crc32(message)]])
    for declared_codec in (str, pickle_codec(str)):
        backend = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4)
        backend.get_partitioned_state(MapStateDescriptor("map", str, declared_codec))
        with pytest.raises((CorruptionError, RestoreRefusedError)):
            restore([opened(data)], backend)
    assert not marker.exists()


@pytest.mark.reliability(26)
def test_metadata_with_a_pickle_or_a_class_name_runs_nothing(tmp_path: Path) -> None:
    """Catches: object reconstruction from JSON."""
    marker = tmp_path / "executed"
    hook = {"__reduce__": ["os.system", f"touch {marker}"], "py/object": "os.system", "kind": "str"}
    assert restore([opened(file_of(metadata(states=[state(type=hook)], hook=hook)))], declared()).rows == 0
    with pytest.raises(CorruptionError):
        opened(file_of(raw_meta=pickle.dumps(Exploit(marker))))
    assert not marker.exists()


# -- what is refused before anything is read -----------------------------------------------------------------


@pytest.mark.reliability(25)
def test_what_does_not_fit_the_declaration_is_refused() -> None:
    """Catches: state of another type, kind, codec or key read as if it were the declared one."""
    writer = HeapKeyedStateBackend(KeySchema.from_python(str), max_parallelism=4)
    writer.get_partitioned_state(ValueStateDescriptor("value", int))
    with writer.snapshot() as snapshot:
        data = b"".join(BaseWriter(writer, snapshot))

    def refused(
        expected: Place, word: str, *descriptors: Any, schema: Any = str, groups: int = 4, **options: Any
    ) -> None:
        backend = HeapKeyedStateBackend(KeySchema.from_python(schema), max_parallelism=groups)
        for descriptor in descriptors:
            backend.get_partitioned_state(descriptor, **options)
        with raising(RestoreRefusedError, word, **expected):
            restore([opened(data)], backend)

    value: Place = {"state": "value"}
    refused(value, "not declared")
    refused(value, "not declared", ValueStateDescriptor("Value", int))
    refused(value, "str", ValueStateDescriptor("value", str))
    refused(value, "map state", MapStateDescriptor("value", str, int))
    refused(value, "codec", ValueStateDescriptor("value", pickle_codec(int)))
    refused({"option": "key schema"}, "bigint", ValueStateDescriptor("value", int), schema=int)
    refused({"option": "max parallelism"}, "8", ValueStateDescriptor("value", int), groups=8)
    refused(value, "namespace", ValueStateDescriptor("value", int), namespace_type=int, namespace=1)


@pytest.mark.reliability(15)
def test_a_backend_that_is_not_new_is_refused() -> None:
    """Catches: loading over state that is there, or under a snapshot that would not see it coming."""
    backend = declared()
    backend.snapshot().release()
    with raising(RestoreRefusedError, "snapshot"):
        restore([opened(file_of())], backend)
    backend = declared()
    backend.set_current_key("a")
    backend.get_partitioned_state(ValueStateDescriptor("value", str)).update("x")
    with raising(RestoreRefusedError, "holds state"):
        restore([opened(file_of())], backend)
