# The C functions of chains.py. They walk a chain by borrowed references, because the reference count and the fields of
# an entry are in two cache lines: to count a reference costs one cache miss more per entry. No borrowed entry is freed
# meanwhile: the registry rejects every change while the `__eq__` or `__hash__` of a key runs.
from cpython.object cimport PyObject

from emberstate.heap.map.geometry cimport ABSENT_PAIR, OVERWRITTEN, PAGE_MASK, PAGE_SHIFT, SHARED_ENTRY
from emberstate.heap.map.page_table cimport PageTable
from emberstate.heap.map.snapshots cimport SnapshotRegistry
from emberstate.heap.map.entry cimport StateMapEntry

cdef extern from "Python.h":
    PyObject* PyList_GET_ITEM(PyObject* items, Py_ssize_t position) noexcept

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define emberstate_prefetch(address) __builtin_prefetch(address)
    #else
    #define emberstate_prefetch(address) ((void)(address))
    #endif
    /* str and int: their `==` and hash run no Python code and never fail. */
    static inline int emberstate_plain(PyObject* value) {
        return Py_TYPE(value) == &PyUnicode_Type || Py_TYPE(value) == &PyLong_Type;
    }
    static inline Py_hash_t emberstate_hash(PyObject* value) {
        return Py_TYPE(value)->tp_hash(value);
    }
    """
    bint emberstate_plain(PyObject* value) noexcept
    Py_hash_t emberstate_hash(PyObject* value) noexcept
    void emberstate_prefetch(const char* address) noexcept

cdef inline Py_hash_t hash_of(SnapshotRegistry registry, object value) except? -1:
    if emberstate_plain(<PyObject*>value):
        return emberstate_hash(<PyObject*>value)
    return registry.hash_of(value)

cdef inline PyObject* borrowed_entry(
    SnapshotRegistry registry, PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace
) except? NULL:
    cdef PyObject* page = PyList_GET_ITEM(<PyObject*>table.pages, bucket >> PAGE_SHIFT)
    if page == <PyObject*>None:
        return NULL
    cdef PyObject* entry = PyList_GET_ITEM(page, bucket & PAGE_MASK)
    while entry != <PyObject*>None:
        if (
            (<StateMapEntry>entry).hash == hash
            and (
                (<StateMapEntry>entry).key is key
                or (
                    <bint>((<StateMapEntry>entry).key == key)
                    if emberstate_plain(<PyObject*>(<StateMapEntry>entry).key) and emberstate_plain(<PyObject*>key)
                    else registry.same((<StateMapEntry>entry).key, key)
                )
            )
            and (
                (<StateMapEntry>entry).namespace is namespace
                or registry.same((<StateMapEntry>entry).namespace, namespace)
            )
        ):
            return entry
        entry = <PyObject*>(<StateMapEntry>entry).next
    return NULL

cdef inline StateMapEntry entry_in(
    SnapshotRegistry registry, PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace
):
    cdef PyObject* entry = borrowed_entry(registry, table, bucket, hash, key, namespace)
    return None if entry == NULL else <StateMapEntry>entry

cdef inline object state_in(
    SnapshotRegistry registry, PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace
):
    cdef PyObject* entry = borrowed_entry(registry, table, bucket, hash, key, namespace)
    return None if entry == NULL else (<StateMapEntry>entry).state

cdef inline int overwrite_in(
    SnapshotRegistry registry, PageTable table, Py_ssize_t bucket, unsigned int hash, object key, object namespace,
    object state
) except -1:
    cdef PyObject* entry = borrowed_entry(registry, table, bucket, hash, key, namespace)
    cdef object old
    if entry == NULL:
        return ABSENT_PAIR
    if (
        (<StateMapEntry>entry).state_version != registry.version
        or (<StateMapEntry>entry).entry_version < registry.required
    ):
        return SHARED_ENTRY
    if registry.busy:
        registry.refuse_change()
    old = (<StateMapEntry>entry).state  # freed when the function returns: its `__del__` may use the map
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
