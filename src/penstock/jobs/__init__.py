"""Many objects at once: ``ps.sync``, ``find``, ``warm``, ``presign``, ``pack``, and the commands ``cp`` and ``mv``.

From ``ps.sync`` to the report:

1. ``mirror`` resolves both URLs (``selection``) and refuses trees that overlap or that ``guard`` protects.
2. ``sync`` lists both sides in key order; ``plan`` maps each key to its destination, and finds keys that cannot be.
3. ``evidence`` compares each pair by its listings; where these are unsure, by contents or recorded times.
4. ``pool`` runs the jobs on this thread and in workers; ``copy`` copies each object through ``steps``, the verbs that a
   job awaits, on the server where that works.
5. ``sync`` deletes what the source lacks, if nothing failed, and if ``overlap`` finds none of it at the source.
6. ``outcome``: each object's outcome goes into the result, to the progress line, and as a line into the report file.

``parts.sync`` does all of it, or each range of names as a part, with records in a bucket; ``carriers`` carry parts out,
here or on a Ray cluster.
``transfer`` is the same for ``cp`` and ``mv``; ``find`` and ``warm`` list and read; ``index`` saves a catalog;
``packing/`` writes shards.
"""
