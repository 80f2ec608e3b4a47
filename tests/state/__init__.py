"""Tests of what users hold of state, and the suite that every keyed state backend has to pass."""
