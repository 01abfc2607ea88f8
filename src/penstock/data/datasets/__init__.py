"""Datasets for PyTorch: a catalog, an order, and samples read from the store.

1. ``dataset``: a constructor checks its arguments and makes a catalog; ``map`` and ``iterable`` are the two classes.
2. ``batched`` forms batches of a sampling plan of ``order/``, for any number of ranks and workers.
3. ``iteration``: each iteration has an epoch, a rank and a worker, and ranks compare what they iterate
   (``consistency``).
4. ``batched`` and ``stateful``: the state of an iteration, and how it resumes.
5. ``readable`` reads the objects of the batches ahead, and gives them to the loader as items of a ``reading``: single
   ``objects``, several for a sample (``groups``), ``runs`` of a shard, or ``units`` and ``chunks`` that are decoded
   once for several samples. ``concat`` and ``mix`` join several datasets (``joined``), and ``joint`` their readings.
6. A transform receives each object as a ``sample``; ``batched`` collates what it returns.
"""
