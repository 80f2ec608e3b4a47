"""State of fixed-width records in columns: rows behind a compiled hash index, changed by whole batches.

For states that fold millions of rows per second into a few numbers per key. Snapshots, roll-backs and changes are those
of `heap/map`'s registry; what differs is that one operation changes many rows and makes no Python object per row.
Imports NumPy, which the rest of `heap` does not: import these modules where they are needed.
"""
