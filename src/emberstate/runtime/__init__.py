"""Runs a user's function over rows with state, timers and event time, without Spark.

`rows` (typed rows in and out), `functions` (what users write, and what it is given), `operator` (the loop),
`windows` and `bootstrap` (a first savepoint), which do not import each other, `aggregates` (declared ones). A room
imports only those named before it. Below are `checkpoint` and `state`; nothing here knows of Spark.
"""
