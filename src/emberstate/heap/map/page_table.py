"""An array of buckets as a directory of pages, so that allocating a large one takes no time.

A page is a list of bucket heads (`StateMapEntry` or None), made when its first bucket is written; a missing page reads
as empty buckets. Compiled, pages are hidden from the cyclic collector: they refer to entries only, which are hidden
too.

Invariants: `capacity` is a power of two; a table smaller than a page has one page of exactly its size.
`version` is the registry's version when the table was made: only a newer snapshot can see the table.
`reached` is the highest rehash index the map has had with this table as its rehash table (see `buckets`).

Thread safety: the map's owner writes; a snapshot's reader may read heads at any time, one page at a time.
"""

from __future__ import annotations

try:
    import cython
except ImportError:
    from emberstate import _cython as cython

if not cython.compiled:  # compiled, these are the C function and constants of the .pxd files
    from emberstate.heap.map.gc_sight import untrack
    from emberstate.heap.map.geometry import PAGE_BUCKETS, PAGE_SHIFT

from emberstate.heap.map.entry import StateMapEntry


@cython.no_gc
@cython.final
@cython.cclass
class PageTable:
    """Bucket heads by bucket number, in pages."""

    __slots__ = ("capacity", "pages", "reached", "version")

    pages: list[list[StateMapEntry | None] | None]
    capacity: int
    version: int
    reached: int

    def __init__(self, capacity: int, version: cython.uint) -> None:
        self.capacity = capacity
        self.pages = [None] * max(1, capacity >> PAGE_SHIFT)
        self.version = version
        self.reached = 0

    def make_page(self, number: cython.Py_ssize_t) -> list[StateMapEntry | None]:
        """Allocate page `number`, which must be missing."""
        page: list[StateMapEntry | None] = [None] * min(self.capacity, PAGE_BUCKETS)
        untrack(page)
        self.pages[number] = page
        return page
