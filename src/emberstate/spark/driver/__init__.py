"""The driver's side of a batch: the transaction, the frames of its stages, placement of slots, outputs, event time.

Imports `plan` and `slot`.
"""
