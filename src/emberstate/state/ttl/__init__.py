"""State that expires: what a user asks for (`config`), when an entry is stale (`stamped`, `filter`), states that hide
or drop stale entries (`states`), and who deletes them (`clean_up`).
"""
