"""NEXMark: an online auction as a stream, and queries over it, as Emberstate pipelines.

`generator` makes the events, `model` says what they are, `queries` has a module per query, `oracle` computes the right
answers with DuckDB, `run` compares and measures. Nothing here uses more of the library than its public names.
"""
