"""``ps.pack`` in this process: samples into shards, with their catalog.

1. ``members`` makes named members of objects of a catalog, or of samples of a dataset.
2. ``pack`` writes them into archives; ``mds`` and ``rows`` make rows of MDS and Parquet of them.
"""
