# The C forms of chains.py: entries are looked at by borrowed reference. Counting a reference would touch the line of
# memory that an entry's header is in, which is another one than its fields are in: one cache miss more per entry.
from cpython.object cimport PyObject

from emberstate.heap.geometry cimport ABSENT_PAIR, OVERWRITTEN, PAGE_MASK, PAGE_SHIFT, SHARED_ENTRY
from emberstate.heap.page_table cimport PageTable
from emberstate.heap.state_map_entry cimport StateMapEntry

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(PyObject* items, Py_ssize_t position) noexcept

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define emberstate_prefetch(address) __builtin_prefetch(address)
    #else
    #define emberstate_prefetch(address) ((void)(address))
    #endif
    """
    void emberstate_prefetch(const char* address) noexcept

cdef inline PyObject* borrowed_entry(
    PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace
) except? NULL:
    cdef PyObject* page = PyList_GET_ITEM(<PyObject*>table.pages, bucket >> PAGE_SHIFT)
    if page == <PyObject*>None:
        return NULL
    cdef PyObject* entry = PyList_GET_ITEM(page, bucket & PAGE_MASK)
    while entry != <PyObject*>None:
        if (
            (<StateMapEntry>entry).hash == hash
            and ((<StateMapEntry>entry).key is key or (<StateMapEntry>entry).key == key)
            and ((<StateMapEntry>entry).namespace is namespace or (<StateMapEntry>entry).namespace == namespace)
        ):
            return entry
        entry = <PyObject*>(<StateMapEntry>entry).next
    return NULL

cdef inline StateMapEntry entry_in(
    PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace
):
    cdef PyObject* entry = borrowed_entry(table, bucket, hash, key, namespace)
    return None if entry == NULL else <StateMapEntry>entry

cdef inline object state_in(PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace):
    cdef PyObject* entry = borrowed_entry(table, bucket, hash, key, namespace)
    return None if entry == NULL else (<StateMapEntry>entry).state

cdef inline int overwrite_in(
    PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace, object state,
    unsigned int version, unsigned int required
) except -1:
    cdef PyObject* entry = borrowed_entry(table, bucket, hash, key, namespace)
    if entry == NULL:
        return ABSENT_PAIR
    if (<StateMapEntry>entry).state_version != version or (<StateMapEntry>entry).entry_version < required:
        return SHARED_ENTRY
    (<StateMapEntry>entry).state = state
    return OVERWRITTEN

cdef inline int prefetch(PageTable table, Py_ssize_t bucket) except -1:
    cdef PyObject* page = PyList_GET_ITEM(<PyObject*>table.pages, bucket >> PAGE_SHIFT)
    cdef char* head
    if page != <PyObject*>None:
        head = <char*>PyList_GET_ITEM(page, bucket & PAGE_MASK)
        emberstate_prefetch(head)
        emberstate_prefetch(head + 16)
    return 0
