from emberstate.heap.map.before_images cimport BeforeImages, MapImage
from emberstate.heap.map.chains cimport entry_in, hash_of, overwrite_in, prefetch, state_in
from emberstate.heap.map.geometry cimport (
    LOOKED_AT_PER_STEP, MOVED_PER_STEP, PAGE_MASK, PAGE_SHIFT, PREFETCH_DISTANCE,
)
from emberstate.heap.map.page_table cimport PageTable
from emberstate.heap.map.snapshots cimport SnapshotPoint, SnapshotRegistry
from emberstate.heap.map.interface cimport StateMap
from emberstate.heap.map.entry cimport StateMapEntry, new_entry
from emberstate.heap.map.value_kind cimport ValueKind

cdef unsigned int mix(long long raw) noexcept
cdef StateMapEntry head_of(PageTable table, Py_ssize_t bucket)
cdef int set_head(PageTable table, Py_ssize_t bucket, StateMapEntry head) except -1

cdef class CopyOnWriteBuckets(StateMap):
    cdef readonly PageTable primary
    cdef readonly PageTable rehash
    cdef readonly Py_ssize_t rehash_index
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t threshold
    cdef readonly unsigned long long modifications
    cdef readonly unsigned int birth
    cdef readonly MapImage image
    cdef BeforeImages primary_side
    cdef BeforeImages rehash_side
    cdef unsigned long long epoch
    cdef readonly list loans
    cdef readonly Py_ssize_t dead_loans
    cdef list retired
    cdef bint chores
    cdef object last_namespace
    cdef Py_hash_t last_namespace_hash
    cdef unsigned long long entry_copies
    cdef unsigned long long state_copies
    cdef unsigned long long rehash_steps
    cdef unsigned long long growths

    cdef unsigned int hash_of(self, object key, object namespace) except? 0
    cdef StateMapEntry find(self, unsigned int hash, object key, object namespace)
    cdef object find_state(self, unsigned int hash, object key, object namespace)
    cdef int overwrite(self, unsigned int hash, object key, object namespace, object state) except -1
    cdef object lend(self, StateMapEntry entry)
    cdef int write(self, StateMapEntry entry, object state) except -1
    cdef int insert(self, unsigned int hash, object key, object namespace, object state) except -1
    cdef int unlink(self, StateMapEntry target) except -1
    cdef StateMapEntry writable(self, StateMapEntry target)
    cdef StateMapEntry in_chain(self, StateMapEntry entry)
    cdef int note(self, StateMapEntry entry, object old) except -1
    cdef int drop_dead_loans(self) except -1
    cdef object _copied(self, object state)
    cdef object _detached(self, StateMapEntry entry)
    cdef int begin_growth(self) except -1
    cdef int do_chores(self) except -1
    cdef int finish_growth(self) except -1
    cdef int enter_epoch(self) except -1
    cdef int refresh_sides(self) except -1
    cdef list images_since(self, unsigned int version)
