"""State that expires: its configuration (`config`), stamps (`stamped`), states that hide and remove what has expired
(`states`), snapshots without it (`filter`), and its removal in the background (`clean_up`).

Imports the interfaces of `state`; backends put it over their states.
"""
