"""Many objects at once: ``ps.sync``, ``find``, ``warm``, ``presign``, ``pack``, ``map``, ``cp``, ``mv``.

From ``ps.sync`` to the report:

1. ``syncing/job`` has the public function: all at once, or each range of names as a part of a job (``parts/``).
2. ``syncing/mirror`` resolves both URLs (``trees/selection``) and refuses trees that overlap or that ``trees/guard``
   protects.
3. ``syncing/sync`` lists both sides in key order; ``trees/plan`` maps each key to its destination, and finds keys that
   cannot be.
4. ``copying/evidence`` compares each pair by its listings; where these are unsure, by contents or recorded times.
5. ``tasks`` runs the jobs on this thread and in workers; ``copying/copy`` copies each object by steps that it awaits,
   on the server where that works.
6. ``syncing/sync`` deletes surplus objects, if nothing failed and ``syncing/mirror`` finds none of them in the source.
7. ``trees/outcome``: each outcome goes into the result, to the progress line, and as a line into the report file.

``copying/transfer`` is the same for ``cp`` and ``mv``; ``trees/find`` and ``warm`` list and read; ``syncing/verify``
compares; ``index`` saves a catalog; ``packing/`` writes shards, ``mapping/`` those of a function's outputs.
"""
