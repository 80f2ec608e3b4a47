"""Runs a user's function over rows with state, timers and event time, without Spark.

`rows` (typed rows in and out), `functions` (what users write, and what it is given), `operator` (the loop),
`windows`, `bootstrap` (a first savepoint). A room imports only those named before it.
"""
