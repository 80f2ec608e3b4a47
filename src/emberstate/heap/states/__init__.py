"""Tables (one map per key group), the states of each kind over them, and the timer queue. Imports `heap.map`."""
