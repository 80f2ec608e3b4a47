"""Key groups: which part of the state a key belongs to, and which slot owns that part.

The lowest layer of Emberstate. A key is hashed the way Spark SQL's ``xxhash64`` hashes its columns, the
hash picks one of ``max_parallelism`` key groups, and every slot owns a contiguous range of groups. A key
therefore has the same group in Spark, in every Python process and in every future release, and changing
the number of slots only moves whole groups.

Imports nothing but ``emberstate.errors``, the standard library and ``xxhash``; never pyspark.

>>> schema = KeySchema.from_python((str, int))
>>> group = schema.key_group(("card-17", 3), DEFAULT_MAX_PARALLELISM)
>>> slot = slot_for_key_group(DEFAULT_MAX_PARALLELISM, 3, group)
>>> group in range_for_slot(DEFAULT_MAX_PARALLELISM, 3, slot)
True
"""

from __future__ import annotations

from emberstate.keygroups.key_group_range import (
    DEFAULT_MAX_PARALLELISM,
    MAX_PARALLELISM_CAP,
    KeyGroupRange,
    check_max_parallelism,
    default_max_parallelism,
    range_for_slot,
    slot_for_key_group,
)
from emberstate.keygroups.key_schema import KeySchema
from emberstate.keygroups.key_types import KeyType

__all__ = [
    "DEFAULT_MAX_PARALLELISM",
    "MAX_PARALLELISM_CAP",
    "KeyGroupRange",
    "KeySchema",
    "KeyType",
    "check_max_parallelism",
    "default_max_parallelism",
    "range_for_slot",
    "slot_for_key_group",
]
