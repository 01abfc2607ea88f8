"""Datasets of tokens: from ``TokenDataset.from_shards(urls)`` to a batch of windows.

1. ``dataset`` checks its arguments, finds the files, pairs each ``.bin`` with its index, and reads headers
   and indexes with the formats of ``data/shards/tokens``.
2. ``windows`` is the arithmetic: from a sample to a byte range of a file, and from an order to runs of samples that are
   read in one request (``runs``).
3. ``runs`` also reads runs ahead, and cuts samples from them; ``dataset`` copies those of a batch into one array.
"""
