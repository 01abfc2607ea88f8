"""State of a training: ``ps.save``, ``ps.load``, ``CheckpointManager``, safetensors and torch's Distributed Checkpoint.

A save, from ``CheckpointManager.save`` (``run/steps``; in the background ``run/background``) to a published manifest:

1. ``torchfile/encoding`` makes plain values of the state, or refuses it; ``torchfile/verbs`` pickles it into records.
2. ``commit``: ``Saving`` opens objects of this save; ``integrity`` digests their blocks as they are written.
3. ``commit`` publishes the manifest last, in one conditional PUT; ``run/store`` deletes superseded steps.

And back: ``run/store`` finds the newest manifest; ``torchfile/archive`` reads the directory of the file without running
its code (``torchfile/scanner``); ``torchfile/load`` has torch make the objects, and reads their storages through
``gather``, which compares every block before it hands a piece on; ``staging`` moves it to a GPU.

``ps.save`` and ``ps.load`` are steps of ``torchfile/`` alone. Several ranks save and load through ``dcp/``
(``run/ranks`` calls it for a manager), whose index is made of ``columns``. ``safetensors/`` has its own format;
``lightning`` its plugins, and ``torch_checkpointing/`` the storage of Meta's library of that name.
"""
