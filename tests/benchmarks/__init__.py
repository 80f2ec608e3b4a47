"""What the benchmarks compute; how fast they are is no matter of tests."""
