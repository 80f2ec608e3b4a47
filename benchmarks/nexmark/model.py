"""What the events are: persons, auctions and bids, in one envelope; prices are cents, times have milliseconds.

An event is a person, an auction or a bid: `event_type` says which, and the column of that name has it; the other two
are null. Of every 50 events in a row the first is a person, the next three are auctions, the others bids.
"""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

PERSON, AUCTION, BID = 0, 1, 2
#: Events of each kind in an epoch, in this order.
PERSONS_PER_EPOCH, AUCTIONS_PER_EPOCH, EPOCH = 1, 3, 50

FIRST_PERSON, FIRST_AUCTION, FIRST_CATEGORY, CATEGORIES = 1000, 1000, 10, 5

#: Forty seconds before midnight, so that a stream of some minutes has two days.
START = datetime(2015, 7, 15, 23, 59, 20, tzinfo=UTC)

_MOMENT = pa.timestamp("us", tz="UTC")

PERSON_TYPE = pa.struct([
    ("id", pa.int64()), ("name", pa.string()), ("emailAddress", pa.string()), ("creditCard", pa.string()),
    ("city", pa.string()), ("state", pa.string()), ("dateTime", _MOMENT), ("extra", pa.string()),
])  # fmt: skip
AUCTION_TYPE = pa.struct([
    ("id", pa.int64()), ("itemName", pa.string()), ("description", pa.string()), ("initialBid", pa.int64()),
    ("reserve", pa.int64()), ("dateTime", _MOMENT), ("expires", _MOMENT), ("seller", pa.int64()),
    ("category", pa.int64()), ("extra", pa.string()),
])  # fmt: skip
BID_TYPE = pa.struct([
    ("auction", pa.int64()), ("bidder", pa.int64()), ("price", pa.int64()), ("channel", pa.string()),
    ("url", pa.string()), ("dateTime", _MOMENT), ("extra", pa.string()),
])  # fmt: skip
SCHEMA = pa.schema([
    ("event_type", pa.int32()), ("person", PERSON_TYPE), ("auction", AUCTION_TYPE), ("bid", BID_TYPE),
    ("dateTime", _MOMENT),
])  # fmt: skip


def _ddl(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_ddl(field.type)}' for field in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    return {"int32": "int", "int64": "bigint", "string": "string"}[str(kind)]


#: The same for Spark's readers.
SPARK_SCHEMA = ", ".join(f"{field.name} {_ddl(field.type)}" for field in SCHEMA)

FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent",
          "Cheyenne")  # fmt: skip
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
#: Channels beside the hot ones.
CHANNELS = 10_000
URL = "https://www.nexmark.com/{}/item.htm?query=1"
