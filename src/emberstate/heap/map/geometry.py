"""The numbers that shape tables; `geometry.pxd` has the same as C constants, and a test compares the two.

A page should be small enough that making or freeing one goes unnoticed in a single operation, and large enough that
the directory of pages stays small; `benchmarks/growth_pause.py` shows the longest operation.
"""

from __future__ import annotations

PAGE_SHIFT = 10
PAGE_BUCKETS = 1024
PAGE_MASK = 1023

#: Buckets per dict of before-images: bounds the stall when such a dict grows.
SHARD_SHIFT = 16

#: While growing, an operation moves whole buckets until this many entries have moved …
MOVED_PER_STEP = 4
#: … or this many buckets were looked at, so that a sparse table does not make one operation scan it all.
LOOKED_AT_PER_STEP = 64

#: How many buckets beyond `rehash_index` entries are brought into the cache, for later operations to move.
PREFETCH_DISTANCE = 16

# What `chains.overwrite_in` says.
ABSENT_PAIR = 0
OVERWRITTEN = 1
SHARED_ENTRY = 2
