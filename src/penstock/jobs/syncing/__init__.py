"""Two trees: ``ps.sync`` and ``ps.copy_tree`` make one equal to another, ``ps.verify`` compares them.

1. ``job`` has the public functions, and the operation of a job in parts.
2. ``mirror`` opens the two trees, which must not overlap.
3. ``sync`` compares them in key order, copies and deletes; ``mirror`` finds objects of the destination that are the
   source's own.

``verify`` is a dry run of the same, or reads one tree, or compares it with a catalog.
"""
