"""Declared aggregates: a stage that is said, not written: `n=es.count(), total=es.sum("amount")`."""
