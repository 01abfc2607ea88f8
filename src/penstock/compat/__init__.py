"""Drop-in replacements for other libraries: change the import, and the program uses Penstock to read and write.

Each package has the name, the public classes, the arguments and the exceptions of the library that it replaces. Its
docstring lists the differences. Nothing in Penstock depends on these packages.

- ``s3torchconnector/``, ``dataflux_pytorch/``, ``osstorchconnector``: datasets over ``data/datasets``; checkpoints over
  ``checkpoint/`` and ``checkpoint/dcp``; their modules have the names that programs import.
- ``multistorageclient/``: clients, paths and functions over ``ps.open`` and ``jobs/``, for its own profiles
  (``stores/profiles``).
- ``zarrdataset``: ``ZarrIterableDataset`` over ``ps.ZarrDataset``.
- ``webdataset``, ``streaming``: datasets of tar and MDS shards over ``data/datasets``.

A call in order: a drop-in's class turns its arguments into a URL and options of a store, warns about arguments without
effect or refuses them (``arguments``), and calls Penstock. ``filesystem`` has objects as files for torch's checkpoints.
Names that are left out raise ``Unsupported`` with an alternative; ``tests/compat/test_originals`` compares all names.
"""
