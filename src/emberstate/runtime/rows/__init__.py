"""Rows: their types, Arrow in and out, keys and event time, the columns that the library adds."""
