"""Samples: catalogs of objects, the order of an epoch, and batches decoded from them, with resumable state.

1. ``catalog/`` lists the objects of a dataset, or reads a manifest (``parquet`` for its columns), into one table.
2. ``order/`` computes which sample comes when, on which rank and worker, from integers only.
3. ``reading/`` reads objects ahead in that order, and ``datasets/`` makes samples of them; ``zarr/`` makes samples of
   arrays, ``tokens/`` of files of tokens, ``video/`` of MP4 files, and ``lerobot/`` of LeRobot's datasets.
   ``shards/`` knows the formats of objects that hold many samples.
4. ``loading/`` transforms the samples in threads or workers, and gives batches, their state and a report.

``region`` is the memory that a process and its workers share: catalogs, epochs and counters are in it; ``node_copy``
gives the processes of a node one copy of a saved catalog. ``vector_file`` writes and reads plans of packed rows and
indexes of videos. ``ranks`` sends to all ranks what one of them has listed.
``unpacking`` decodes compressed files within a budget.
"""
