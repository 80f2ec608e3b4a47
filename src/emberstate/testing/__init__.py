"""Testing without Spark and without a JVM: a function by `Harness`, a sink by `check_sink`. See docs/testing.md.

`faults` and `faulty_file_system` have storages and disks that fail, for tests of the library itself. Imports
everything but `spark` and `cli`.
"""

from emberstate.clock import ManualClock
from emberstate.runtime.rows.keyed_input import KeyedInput
from emberstate.testing.harness import START, Harness, HarnessSnapshot, HarnessStatistics
from emberstate.testing.sinks import LocalDelivery, check_sink

__all__ = [
    "START",
    "Harness",
    "HarnessSnapshot",
    "HarnessStatistics",
    "KeyedInput",
    "LocalDelivery",
    "ManualClock",
    "check_sink",
]
