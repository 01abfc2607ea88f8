"""Other libraries' interfaces over Penstock's stores: one file or package for each library.

- ``fsspec/``: a file system for pandas, Dask, ``datasets`` and all who open files through fsspec.
- ``arrow``: a ``pyarrow.fs.FileSystem``; also the files that pyarrow opens through ``fsspec/``.
- ``path``: ``ps.Path``, for code that works with pathlib and universal_pathlib.
- ``obspec``: ``Store`` with obspec's protocols.
- ``zarr/``: ``Store`` for zarr and xarray, and ``copy``, which re-chunks.

Each maps a name to ``source.open_source(url)`` and calls the source; blocking calls go straight to it, coroutines
through ``awaiting``, which wakes the caller's event loop from the engine's thread. Errors stay Penstock's, under the
names that the library expects. Each docstring states the limits. A missing library raises ``MissingExtra``.
"""
