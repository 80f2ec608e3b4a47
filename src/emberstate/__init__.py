"""Keyed state for PySpark streaming: hot Python objects, copy-on-write snapshots, exact restore."""

from emberstate import _hot

_hot.choose()
