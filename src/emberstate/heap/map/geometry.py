"""The numbers that shape tables; `geometry.pxd` has the same as C constants, and a test compares the two.

A page is small enough that making or freeing one does not stall an operation, and large enough that the directory of
pages stays small; `benchmarks/growth_pause.py` measures the longest operation.
"""

from __future__ import annotations

PAGE_SHIFT = 10
PAGE_BUCKETS = 1024
PAGE_MASK = 1023

#: log2 of the buckets per dict of before-images: bounds the stall when such a dict grows.
SHARD_SHIFT = 16

#: While growing, an operation moves whole buckets until this many entries have moved …
MOVED_PER_STEP = 4
#: … or this many buckets were looked at, so that a sparse table does not make one operation scan it all.
LOOKED_AT_PER_STEP = 64

#: Heads this many buckets beyond `rehash_index` are prefetched, for later operations to move.
PREFETCH_DISTANCE = 16

# Results of `chains.overwrite_in`.
ABSENT_PAIR = 0
OVERWRITTEN = 1
SHARED_ENTRY = 2
