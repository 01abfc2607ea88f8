"""Stores: targets of URLs, how they are opened, and the dialects of their servers. A folder per store.

From a URL to an opened bucket:

1. ``urls.parse`` splits the URL; ``profiles/multistorage`` may replace it first (``path_mapping``).
2. ``urls.find_store`` imports the store of the scheme: a subclass of ``store.Store``, such as ``s3/services.R2``.
3. For ``penstock://`` and ``msc://``, ``profiles/files`` reads the tables, ``profiles/lookup`` makes the
   options of them, and ``profiles/store`` wraps the store.
4. ``source.Source`` takes the options (``Store.take``), looks every setting up (``Store.resolve``; ``s3/settings`` for
   S3's family), and chooses a preset (``Store.variant``). Nothing was sent so far.
5. The first request opens the bucket: ``Store.open`` imports driver, dialect and ``credentials``, and gives the driver
   its ``RefreshingCredentials`` and a transport (``http/network``).
6. The driver turns each verb into a request and each answer, by ``http/answers`` and ``http/verify``, into a result.
"""
