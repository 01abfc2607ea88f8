"""Datasets for PyTorch: a catalog, an order, and samples read from the store.

1. ``dataset``: a constructor checks its arguments and makes a catalog; ``map`` and ``iterable`` are the two classes.
   ``windows`` is the base class of datasets of tokens and clips, whose samples are computed.
2. ``batched`` forms batches of a sampling plan of ``order/``, for any number of ranks and workers.
3. Each iteration has an epoch, a rank and a worker (``reading/iteration``), and ranks compare what they iterate
   (``consistency``).
4. ``batched`` and ``stateful``: the state of an iteration, and how it resumes.
5. ``inspection``: which samples a batch has, and which batches a run received between two states; nothing is read.
6. ``dataset`` gives the objects of the batches ahead to the loader as items of a reading of ``reading/``. ``concat``
   and ``mix`` join several datasets.
7. A transform receives each object as a sample; ``collation`` has the function that collates what it returns.
"""
