"""One batch as a transaction: what slots prepare, the coordinator that commits it, rewrites in the background,
savepoints, and the collection of files that nobody needs. Imports `files`, `manifest` and `restore`.
"""
