# The constants of geometry.py for C. A test compares the two files.
cdef enum:
    PAGE_SHIFT = 10
    PAGE_BUCKETS = 1024
    PAGE_MASK = 1023
    SHARD_SHIFT = 16
    MOVED_PER_STEP = 4
    LOOKED_AT_PER_STEP = 64
    PREFETCH_DISTANCE = 16
    ABSENT_PAIR = 0
    OVERWRITTEN = 1
    SHARED_ENTRY = 2
