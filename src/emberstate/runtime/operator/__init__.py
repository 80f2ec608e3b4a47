"""One operator of one slot: the loop over rows and timers, its state, its outputs, and what it commits.

Imports `rows` and `functions`, and `checkpoint` to restore and to write. A function it knows by its interface alone:
`windows` and `aggregates` are above it.
"""
