"""The events of NEXMark."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks.nexmark import model
from benchmarks.nexmark.generator import Config, events, write_files

#: Of the first 2,000 events of seed 1. Another one means that all results so far are of other events.
GOLDEN = "5c3a34bc1aeae3562299abaf954aa812de2b323ac561a991f96c769d47d5177a"


def test_events_are_the_same_everywhere() -> None:
    """Catches: another version of NumPy, another processor or an edit that makes other events of the same seed."""
    digest = hashlib.sha256()
    for row in events(Config(seed=1), 0, 2_000).to_pylist():
        digest.update(repr(row).encode())
    assert digest.hexdigest() == GOLDEN


@pytest.mark.parametrize("group", [1, 64])
@pytest.mark.parametrize("parts", [2, 7])
def test_parts_make_the_whole(group: int, parts: int) -> None:
    """Catches: an event that depends on which events were made before it, or together with it."""
    config = Config(seed=3, out_of_order=group)
    whole = events(config, 0, 3_000)
    cuts = [3_000 * part // parts for part in range(parts + 1)]
    split = pa.concat_tables([events(config, start, stop) for start, stop in itertools.pairwise(cuts)])
    assert split.equals(whole)


def test_another_seed_makes_other_events() -> None:
    """Catches: a seed that nothing depends on."""
    one, other = (events(Config(seed=seed), 0, 1_000).column("bid").combine_chunks() for seed in (1, 2))
    same = pc.sum(pc.equal(one.field("extra"), other.field("extra"))).as_py()
    assert same == 0


def test_groups_are_out_of_order_and_complete() -> None:
    """Catches: an option for disorder that loses events, repeats them, or leaves them in order."""
    ordered = events(Config(rate=1_000), 0, 1_280)
    shuffled = events(Config(rate=1_000, out_of_order=64), 0, 1_280)
    assert not shuffled.equals(ordered)
    for start in range(0, 1_280, 64):
        one, other = (table.slice(start, 64).to_pylist() for table in (ordered, shuffled))
        assert one != other
        assert sorted(one, key=repr) == sorted(other, key=repr)


def test_the_mix_and_the_references() -> None:
    """Catches: shares of persons, auctions and bids that are not 1 : 3 : 46; references to nobody; bidders that are
    shifted by the first id twice; hot keys that are not hot."""
    count = 100_000
    table = events(Config(), 0, count)
    kinds = {one["values"]: one["counts"] for one in pc.value_counts(table.column("event_type")).to_pylist()}
    assert kinds == {model.PERSON: count // 50, model.AUCTION: count * 3 // 50, model.BID: count * 46 // 50}
    person, auction, bid = (table.column(name).combine_chunks().drop_null() for name in ("person", "auction", "bid"))
    assert person.field("id").to_pylist() == list(range(1_000, 1_000 + count // 50))
    assert auction.field("id").to_pylist() == list(range(1_000, 1_000 + count * 3 // 50))
    for field, owner, lead in (
        (bid.field("bidder"), person, 10), (auction.field("seller"), person, 10), (bid.field("auction"), auction, 10)
    ):  # fmt: skip
        limits = pc.min_max(field).as_py()
        assert limits["min"] >= 1_000 and limits["max"] <= pc.max(owner.field("id")).as_py() + lead
    hot = pc.mean(pc.equal(pc.subtract(bid.field("bidder"), pc.multiply(pc.divide(bid.field("bidder"), 100), 100)), 1))
    assert 0.70 < hot.as_py() < 0.80
    prices = pc.min_max(bid.field("price")).as_py()
    assert 100 <= prices["min"] < 1_000 and 10**7 < prices["max"] <= 10**8
    assert pc.all(pc.greater(auction.field("expires"), auction.field("dateTime"))).as_py()


def test_a_group_that_would_repeat_events_is_rejected() -> None:
    """Catches: a group size for which the order is no permutation, so that events are missing."""
    with pytest.raises(ValueError, match="953"):
        Config(out_of_order=953 * 2)


def test_files_are_the_stream_in_order(tmp_path: Path) -> None:
    """Catches: a file with other events, or with a time that makes Spark read it too early."""
    write_files(tmp_path, Config(seed=5), 1_000, 3)
    files = sorted(tmp_path.iterdir())
    assert [path.name for path in files] == ["000000.parquet", "000001.parquet", "000002.parquet"]
    assert sorted(files, key=lambda path: path.stat().st_mtime) == files
    assert pa.concat_tables([pq.read_table(path) for path in files]).equals(events(Config(seed=5), 0, 1_000))
