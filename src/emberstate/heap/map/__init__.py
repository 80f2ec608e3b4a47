"""Maps of one key group's entries, (key, namespace) to state, with snapshots in O(1) and incremental rehashing.

Imports `state` for the shape of changes; nothing else of the package. One thread writes a map; any thread may read
a snapshot of it.
"""
