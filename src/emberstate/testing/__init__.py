"""Testing a function without Spark and without a JVM: `Harness`. See docs/testing.md."""

from emberstate.runtime.keyed_input import KeyedInput
from emberstate.testing.harness import START, Harness, HarnessSnapshot, HarnessStatistics

__all__ = ["START", "Harness", "HarnessSnapshot", "HarnessStatistics", "KeyedInput"]
