"""Makes the events: `python -m benchmarks.nexmark.generator FOLDER [--events N] [--files K] [--seed S] [--rate R]`.

The rules are those of Apache Beam's generator where it and nexmark/nexmark differ: every event follows from the seed
and its number, so any cut into parts gives the same events, and the first person's id is added to a bidder once.
Channels and urls are nexmark/nexmark's. Own rules: text is of small letters only; prices have 2²⁰ steps, so that they
are the same on every processor; whether the url of a channel has its id follows from the channel.

Event time has nothing to do with how fast events are made: `rate` is events per second of event time.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.nexmark import model
from benchmarks.nexmark.random_numbers import Draws

Ints = np.ndarray[Any, np.dtype[np.int64]]

#: A hot auction, seller or bidder is the first of a hundred; of so many rows all but one are hot.
HOT_EVERY, HOT_AUCTIONS, HOT_SELLERS, HOT_BIDDERS, HOT_CHANNEL = 100, 2, 4, 4, 2
#: Auctions and persons that are active at a time, and how far ahead of them an event may point.
AUCTIONS_IN_FLIGHT, ACTIVE_PEOPLE, LEAD = 100, 1000, 10
#: Events in which the auctions in flight begin.
_HORIZON_EVENTS = AUCTIONS_IN_FLIGHT * model.EPOCH // model.AUCTIONS_PER_EPOCH
#: Average sizes of an event, and of its fields other than `extra`.
_SIZES = {"person": (200, 90), "auction": (500, 120), "bid": (100, 32)}
#: Draws of an event; no two fields share one.
(_PRICE, _OTHER_PRICE, _HOT, _WHO, _HOT_TOO, _WHAT, _CHANNEL_HOT, _CHANNEL, _CATEGORY, _LENGTH, _FIRST, _LAST, _CITY,
 _STATE, _CARD, _CARD_TOO, _MAIL, _MAIL_HOST, _NAME, _DESCRIPTION, _EXTRA) = range(21)  # fmt: skip

#: Prices: 100 · 10^(6u) cents. Their steps are products of these, whose powers Python computes.
_COARSE = np.array([100.0 * 10.0 ** (6 * i / 1024) for i in range(1024)])
_FINE = np.array([10.0 ** (6 * i / 1024 / 1024) for i in range(1024)])


@dataclasses.dataclass(frozen=True)
class Config:
    """What the events depend on.

    Attributes:
        seed: Another seed, other events.
        rate: Events per second of event time.
        out_of_order: Events come in groups of this size, each in a fixed order that is not that of time; 1: in order.
    """

    seed: int = 1
    rate: float = 10_000
    out_of_order: int = 1

    def __post_init__(self) -> None:
        if self.out_of_order < 1 or self.out_of_order % 953 == 0:
            raise ValueError(f"out_of_order: expected at least 1, and no multiple of 953, got {self.out_of_order}")

    def numbers(self, start: int, stop: int) -> Ints:
        """The numbers of the events, in the order in which they come."""
        places = np.arange(start, stop, dtype=np.int64)
        group = self.out_of_order
        return places // group * group + places * 953 % group

    def milliseconds(self, numbers: Ints) -> Ints:
        """Their event times, from the start of the stream."""
        return (numbers * (1e6 / self.rate)).astype(np.int64) // 1000


def events(config: Config, start: int, stop: int) -> pa.Table:
    """The events from place `start` up to place `stop` of the stream."""
    numbers = config.numbers(start, stop)
    offset = numbers % model.EPOCH
    kinds = np.select(
        [offset < model.PERSONS_PER_EPOCH, offset < model.PERSONS_PER_EPOCH + model.AUCTIONS_PER_EPOCH],
        [model.PERSON, model.AUCTION], model.BID,
    )  # fmt: skip
    columns = []
    for kind, make in enumerate((_persons, _auctions, _bids)):
        chosen = kinds == kind
        index = np.where(chosen, np.cumsum(chosen) - 1, 0)
        columns.append(make(config, numbers[chosen]).take(pa.array(index, mask=~chosen)))
    times = _moments(config.milliseconds(numbers))
    return pa.table([pa.array(kinds, pa.int32()), *columns, times], schema=model.SCHEMA)


def write_files(folder: Path, config: Config, count: int, files: int) -> None:
    """Write the events as Parquet files of equal size, to be read one after the other, a file per batch."""
    folder.mkdir(parents=True, exist_ok=True)
    cuts = [count * number // files for number in range(files + 1)]
    for number, (start, stop) in enumerate(itertools.pairwise(cuts)):
        hidden = folder / f"_{number:06}.parquet"
        pq.write_table(events(config, start, stop), hidden, row_group_size=max(1, stop - start))
        os.utime(hidden, (1_000_000_000 + number,) * 2)  # Spark takes files in order of their times
        hidden.rename(folder / f"{number:06}.parquet")


def _moments(milliseconds: Ints) -> pa.Array:
    start = round(model.START.timestamp() * 1e6)
    return pa.array(start + milliseconds * 1000).cast(model.SCHEMA.field("dateTime").type)


def _last_person(numbers: Ints) -> Ints:
    """The latest person at an event, counted from 0."""
    return numbers // model.EPOCH * model.PERSONS_PER_EPOCH + np.minimum(
        numbers % model.EPOCH, model.PERSONS_PER_EPOCH - 1
    )


def _last_auction(numbers: Ints) -> Ints:
    """The latest auction at an event, counted from 0; −1 before the first."""
    begun = numbers % model.EPOCH - model.PERSONS_PER_EPOCH + 1
    begun = np.clip(begun, 0, model.AUCTIONS_PER_EPOCH)
    return numbers // model.EPOCH * model.AUCTIONS_PER_EPOCH + begun - 1


def _person(draws: Draws, numbers: Ints, hot_ratio: int, hot_offset: int) -> Ints:
    """A person that an event refers to; may be one of the next ten."""
    last = _last_person(numbers)
    active = np.minimum(last + 1, ACTIVE_PEOPLE)
    found = last + 1 - active + draws.below(_WHO, active + LEAD)
    hot = draws.below(_HOT, hot_ratio) > 0
    chosen: Ints = np.where(hot, last // HOT_EVERY * HOT_EVERY + hot_offset, found)
    return chosen + model.FIRST_PERSON


def _price(draws: Draws, draw: int) -> Ints:
    step = draws.below(draw, 1 << 20)
    cents: Ints = np.rint(_COARSE[step >> 10] * _FINE[step & 1023]).astype(np.int64)
    return cents


def _extra(draws: Draws, kind: str) -> pa.Array:
    """Padding: what is missing to the average size, give or take a fifth."""
    average, others = _SIZES[kind]
    rest = average - others
    return draws.text(_EXTRA, rest - rest // 5, rest + rest // 5)


def _one_of(draws: Draws, draw: int, words: tuple[str, ...]) -> pa.Array:
    return pa.array(words).take(pa.array(draws.below(draw, len(words))))


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")


def _persons(config: Config, numbers: Ints) -> pa.Array:
    draws = Draws(config.seed, numbers)
    one, other = draws.below(_CARD, 10**8), draws.below(_CARD_TOO, 10**8)
    parts = (one // 10**4, one % 10**4, other // 10**4, other % 10**4)
    cards = [f"{a:04} {b:04} {c:04} {d:04}" for a, b, c, d in zip(*parts, strict=True)]
    fields = [
        pa.array(_last_person(numbers) + model.FIRST_PERSON),
        _joined(_one_of(draws, _FIRST, model.FIRST_NAMES), " ", _one_of(draws, _LAST, model.LAST_NAMES)),
        _joined(draws.text(_MAIL, 3, 7), "@", draws.text(_MAIL_HOST, 3, 5), ".com"),
        pa.array(cards, pa.string()),
        _one_of(draws, _CITY, model.CITIES),
        _one_of(draws, _STATE, model.STATES),
        _moments(config.milliseconds(numbers)),
        _extra(draws, "person"),
    ]
    return pa.StructArray.from_arrays(fields, fields=list(model.PERSON_TYPE))


def _auctions(config: Config, numbers: Ints) -> pa.Array:
    draws = Draws(config.seed, numbers)
    begins = config.milliseconds(numbers)
    horizon = config.milliseconds(numbers + _HORIZON_EVENTS) - begins
    first = _price(draws, _PRICE)
    fields = [
        pa.array(_last_auction(numbers) + model.FIRST_AUCTION),
        draws.text(_NAME, 3, 20),
        draws.text(_DESCRIPTION, 3, 100),
        pa.array(first),
        pa.array(first + _price(draws, _OTHER_PRICE)),
        _moments(begins),
        _moments(begins + 1 + draws.below(_LENGTH, np.maximum(2 * horizon, 1))),
        pa.array(_person(draws, numbers, HOT_SELLERS, 0)),
        pa.array(draws.below(_CATEGORY, model.CATEGORIES) + model.FIRST_CATEGORY),
        _extra(draws, "auction"),
    ]
    return pa.StructArray.from_arrays(fields, fields=list(model.AUCTION_TYPE))


def _bids(config: Config, numbers: Ints) -> pa.Array:
    draws = Draws(config.seed, numbers)
    last = _last_auction(numbers)
    first = np.maximum(last - AUCTIONS_IN_FLIGHT, 0)
    any_auction = first + draws.below(_WHAT, last - first + 1 + LEAD)
    hot = draws.below(_HOT_TOO, HOT_AUCTIONS) > 0
    auctions = np.where(hot, last // HOT_EVERY * HOT_EVERY, any_auction) + model.FIRST_AUCTION
    hot = draws.below(_CHANNEL_HOT, HOT_CHANNEL) > 0
    which = draws.below(_CHANNEL, np.where(hot, len(model.HOT_CHANNELS), model.CHANNELS))
    channels = pa.array(np.where(hot, which, which + len(model.HOT_CHANNELS)))
    fields = [
        pa.array(auctions),
        # Not the hot sellers, but those beside them.
        pa.array(_person(draws, numbers, HOT_BIDDERS, 1)),
        pa.array(_price(draws, _PRICE)),
        _CHANNEL_NAMES.take(channels),
        _URLS.take(channels),
        _moments(config.milliseconds(numbers)),
        _extra(draws, "bid"),
    ]
    return pa.StructArray.from_arrays(fields, fields=list(model.BID_TYPE))


def _channel_url(channel: int) -> str:
    url = model.URL.format("a/b/c")
    if channel % 10 == 0:
        return url
    reversed_bits = int(f"{channel:032b}"[::-1], 2)
    return f"{url}&channel_id={abs(reversed_bits - ((reversed_bits >> 31) << 32))}"


_CHANNEL_NAMES = pa.array([*model.HOT_CHANNELS, *(f"channel-{number}" for number in range(model.CHANNELS))])
_URLS = pa.array([*(model.URL.format(f"hot/{name.lower()}/c") for name in model.HOT_CHANNELS),
                  *map(_channel_url, range(model.CHANNELS))])  # fmt: skip


def main() -> None:
    """Write files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=10)
    parser.add_argument("--seed", type=int, default=Config.seed)
    parser.add_argument("--rate", type=float, default=Config.rate, help="events per second of event time")
    parser.add_argument("--out-of-order", type=int, default=1, help="events in a group that is out of order")
    options = parser.parse_args()
    config = Config(options.seed, options.rate, options.out_of_order)
    write_files(options.folder, config, options.events, options.files)


if __name__ == "__main__":
    main()
