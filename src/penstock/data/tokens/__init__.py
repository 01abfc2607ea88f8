"""Datasets of tokens: from ``TokenDataset.from_shards(urls)`` to a batch of windows, or of packed documents.

1. ``dataset`` checks its arguments; ``opening`` finds the files, pairs each ``.bin`` with its index, and reads headers
   and indexes with the formats of ``data/shards/tokens``.
2. ``windows`` is the arithmetic: from a sample to a byte range of a file, and from an order to runs of samples that are
   read in one request (``runs``).
3. With ``pack=``, ``packing`` plans rows of documents from their lengths, and ``rows`` stands in the place of
   ``windows``: blocks of rows, their byte ranges, and rows of the bytes. ``plans`` saves what was planned.
4. ``runs`` also reads runs ahead, and cuts samples from them; ``dataset`` copies those of a batch into one array, or
   ``batch`` into a ``PackedBatch``.
"""
