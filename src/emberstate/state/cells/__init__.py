"""Keys and records of many rows at once: columns of values to binary cells (`packing`, `keys`) and back.

Imports `codec` and `keygroups`. State in columns and state files use it.
"""
