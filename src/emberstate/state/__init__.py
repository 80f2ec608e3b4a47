"""What a state is, whatever keeps it: descriptors and declared types, the interfaces of states, the handles that user
code holds, the key context, timers. `ttl` is about state that expires.

Imports `codec` and `keygroups`, never a backend.
"""
