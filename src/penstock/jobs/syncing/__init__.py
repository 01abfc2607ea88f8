"""``ps.sync`` and ``ps.copy_tree``: one tree made equal to another.

1. ``job`` has the public functions, and the operation of a job in parts.
2. ``sync`` compares two trees in key order, copies and deletes.
3. ``overlap`` finds objects of the destination that are the source's own.
"""
