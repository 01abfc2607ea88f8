"""Reading of samples: the objects of the batches ahead, in the order of an iteration, as items for a loader.

1. ``iteration``: each iteration has an epoch, a rank and a worker.
2. ``reading`` yields items in order, read ahead: ``objects``, one or several for a sample, ``runs`` of a shard, or
   ``chunks`` that are decoded once for several samples; ``joint`` joins several readings.
   Workers of a loader share the blocks that one of them reads (``sharing``).
   ``pool`` has memory for chunks and batches that is used again.
3. A transform receives each object as a ``sample``.
"""
