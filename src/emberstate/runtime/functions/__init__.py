"""What users write: functions, declared states, timers; and the context that they are given."""
