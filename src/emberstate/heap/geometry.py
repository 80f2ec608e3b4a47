"""The numbers that shape tables; `geometry.pxd` has the same as C constants, and a test compares the two.

Measured on a table growing to 5M entries: pages of 1,024 buckets take 2 µs to make and free, which no
operation notices; smaller ones make the directory the larger part, larger ones show in the longest put.
"""

from __future__ import annotations

PAGE_SHIFT = 10
PAGE_BUCKETS = 1024
PAGE_MASK = 1023

#: Buckets per dict of before-images: bounds the stall when such a dict grows.
SHARD_SHIFT = 13

#: While growing, an operation moves whole buckets until this many entries have moved …
MOVED_PER_STEP = 4
#: … or this many buckets were looked at, so that a sparse table does not make one operation scan it all.
LOOKED_AT_PER_STEP = 64

#: How many buckets beyond `rehash_index` entries are brought into the cache, for later operations to move.
PREFETCH_DISTANCE = 16
