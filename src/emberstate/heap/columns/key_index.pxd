from libc.string cimport memcmp, memcpy

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define emberstate_prefetch_line(address) __builtin_prefetch(address)
    #else
    #define emberstate_prefetch_line(address)
    #endif
    """
    void prefetch_line "emberstate_prefetch_line"(const void* address) noexcept

cdef enum:
    EMPTY = 0
    TOMBSTONE = 1
    FIRST_ROW = 2

cdef class KeyIndex:
    cdef unsigned long long[::1] slots
    cdef unsigned char[::1] arena
    cdef long long[::1] starts
    cdef int[::1] lengths
    cdef int[::1] namespaces
    # The keys that are being looked up; the pointers below point to where the arrays begin.
    cdef const unsigned char[::1] batch
    cdef unsigned int[::1] hashes
    cdef const unsigned char* batch_bytes
    cdef unsigned char* arena_bytes
    cdef unsigned long long* slots_at
    cdef long long* starts_at
    cdef int* lengths_at
    cdef int* spaces_at
    cdef const unsigned int* hashes_at
    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t entries
    cdef readonly Py_ssize_t tombstones
    cdef readonly Py_ssize_t arena_used
    cdef readonly Py_ssize_t garbage
    cdef readonly list free_rows
    cdef unsigned long long mask
    cdef unsigned long long vacant
    cdef int aim(self, object data, Py_ssize_t count) except -1
    cdef Py_ssize_t seek(self, unsigned int hash, Py_ssize_t start, Py_ssize_t length, int namespace) except -2
    cdef Py_ssize_t insert(self, unsigned int hash, Py_ssize_t start, Py_ssize_t length, int namespace) except -1
    cdef int make_room(self, Py_ssize_t entries) except -1
    cdef int rehash(self, Py_ssize_t entries) except -1
    cdef int make_arena_room(self, Py_ssize_t length) except -1
    cdef int remove(self, Py_ssize_t row) except -1


cdef inline int point(KeyIndex index) except -1:
    index.batch_bytes = &index.batch[0]
    index.arena_bytes = &index.arena[0]
    index.slots_at = &index.slots[0]
    index.starts_at = &index.starts[0]
    index.lengths_at = &index.lengths[0]
    index.spaces_at = &index.namespaces[0]
    index.hashes_at = &index.hashes[0]
    return 0


cdef unsigned long long SEED


cdef inline unsigned int hash_of(const unsigned char* key, Py_ssize_t length, int namespace) noexcept:
    cdef unsigned long long word
    cdef unsigned long long prime = 0x9E3779B97F4A7C15ULL
    cdef unsigned long long mixed = SEED ^ (<unsigned long long>length * prime) ^ <unsigned int>namespace
    while length >= 8:
        memcpy(&word, key, 8)
        mixed = (mixed ^ word) * prime
        mixed ^= mixed >> 29
        key += 8
        length -= 8
    if length > 0:
        word = 0
        memcpy(&word, key, length)
        mixed = (mixed ^ word) * prime
    mixed ^= mixed >> 32
    mixed *= 0xD6E8FEB86659FD93ULL
    return <unsigned int>(mixed >> 32)


cdef inline unsigned int hash_in_batch(KeyIndex index, Py_ssize_t start, Py_ssize_t length, int namespace) noexcept:
    return hash_of(index.batch_bytes + start, length, namespace)


cdef inline unsigned int hash_of_row(KeyIndex index, Py_ssize_t row) noexcept:
    return hash_of(index.arena_bytes + index.starts_at[row], index.lengths_at[row], index.spaces_at[row])


cdef inline bint same_key(KeyIndex index, Py_ssize_t row, Py_ssize_t start, Py_ssize_t length) noexcept:
    return index.lengths_at[row] == length and memcmp(
        index.arena_bytes + index.starts_at[row], index.batch_bytes + start, length
    ) == 0


cdef inline int copy_in(KeyIndex index, Py_ssize_t target, Py_ssize_t start, Py_ssize_t length) except -1:
    memcpy(index.arena_bytes + target, index.batch_bytes + start, length)
    return 0


cdef inline int copy_out(KeyIndex index, unsigned char[::1] data, Py_ssize_t target, Py_ssize_t row) except -1:
    if index.lengths_at[row] > 0:
        memcpy(&data[target], index.arena_bytes + index.starts_at[row], index.lengths_at[row])
    return 0


cdef enum:
    NEAR = 8


# Of keys that are looked up soon: the slot, then what the row has, then the key, each while others are compared.
cdef inline int look_ahead(KeyIndex index, Py_ssize_t i, Py_ssize_t count) noexcept:
    cdef unsigned long long word
    cdef Py_ssize_t row
    if i + 3 * NEAR >= count:
        return 0
    prefetch_line(&index.slots_at[index.hashes_at[i + 3 * NEAR] & index.mask])
    word = index.slots_at[index.hashes_at[i + 2 * NEAR] & index.mask]
    if word >= FIRST_ROW:
        row = <unsigned int>word - <Py_ssize_t>FIRST_ROW
        prefetch_line(&index.starts_at[row])
        prefetch_line(&index.lengths_at[row])
        prefetch_line(&index.spaces_at[row])
    word = index.slots_at[index.hashes_at[i + NEAR] & index.mask]
    if word >= FIRST_ROW:
        prefetch_line(index.arena_bytes + index.starts_at[<unsigned int>word - <Py_ssize_t>FIRST_ROW])
    return 0
