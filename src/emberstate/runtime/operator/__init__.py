"""One operator of one slot: the loop over rows and timers, its state, its outputs, and what it commits."""
