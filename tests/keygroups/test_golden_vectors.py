"""The hash against the vectors that Spark computed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from emberstate.keygroups import KeySchema
from tests.keygroups.golden import GOLDEN_FILE, edge_values, key_of, to_text

GOLDEN: dict[str, Any] = json.loads(GOLDEN_FILE.read_text(encoding="ascii"))
VECTORS: list[dict[str, Any]] = GOLDEN["vectors"]


@pytest.mark.parametrize("entry", VECTORS, ids=lambda entry: ",".join(entry["types"]))
def test_hashes_are_sparks(entry: dict[str, Any]) -> None:
    """Catches: any deviation from Spark's xxhash64, for any type, length or column order."""
    schema = KeySchema(entry["types"])
    for *texts, expected in entry["rows"]:
        key = key_of(entry["types"], texts)
        assert (texts, int(expected)) == (texts, schema.hash64(key))
        assert int(expected) == schema.hash64(schema.normalise(key))


def test_key_groups_are_sparks_pmod() -> None:
    """Catches: a remainder of the unsigned hash, or one that keeps the sign, for any max parallelism."""
    schema = KeySchema(["bigint"])
    max_parallelisms, *rows = GOLDEN["pmod"]
    for key, (hash64, *groups) in enumerate(rows):
        assert int(hash64) == schema.hash64(key)
        assert groups == [schema.key_group(key, m) for m in max_parallelisms]
        assert groups == [schema.key_grouper(m)(key) for m in max_parallelisms]


@pytest.mark.parametrize("max_parallelism", [1, 7, 128, 1000, 32768])
def test_every_way_to_the_group_agrees(max_parallelism: int) -> None:
    """Catches: a fast path for some type that differs from pmod(hash64, max parallelism)."""
    for entry in VECTORS:
        schema = KeySchema(entry["types"])
        grouper = schema.key_grouper(max_parallelism)
        for *texts, expected in entry["rows"][::7]:
            key = key_of(entry["types"], texts)
            group = int(expected) % max_parallelism
            assert (group, group) == (grouper(key), schema.key_group(key, max_parallelism))


def test_the_vectors_cover_what_they_claim() -> None:
    """Catches: a regenerated file that lost types, edge values or most of its keys."""
    assert sum(len(entry["rows"]) for entry in VECTORS) >= 10_000
    assert GOLDEN["session_time_zone"] != "UTC"
    assert {1, 2, 3} == {len(entry["types"]) for entry in VECTORS}
    for entry in VECTORS:
        if len(entry["types"]) == 1:
            source = entry["types"][0]
            stored = {texts[0] for texts in entry["rows"]}
            assert {to_text(source, value) for value in edge_values(source)} <= stored
    (binary,) = [entry for entry in VECTORS if entry["types"] == ["binary"]]
    assert set(range(101)) <= {len(row[0]) // 2 for row in binary["rows"]}


def test_keys_spread_over_all_groups() -> None:
    """Catches: a hash whose low bits are lost, so that slots stay empty."""
    group = KeySchema(["bigint"]).key_grouper(128)
    counts = [0] * 128
    for key in range(12_800):
        counts[group(key)] += 1

    assert min(counts) > 50 and max(counts) < 160
