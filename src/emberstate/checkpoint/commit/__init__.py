"""One batch as a transaction: slots prepare it, the coordinator commits it. Also background rewrites, savepoints, and
the collection of unneeded files. Imports `files`, `manifest` and `restore`.
"""
