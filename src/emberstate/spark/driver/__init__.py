"""What the driver does for every batch: frames, placement of slots, the transaction, outputs, time."""
