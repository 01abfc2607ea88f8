"""``ps.pack``: samples into shards, with their catalog.

1. ``members`` makes named members of objects of a catalog, or of samples of a dataset.
2. ``pack`` writes them into archives; ``rows`` makes rows of MDS and Parquet of them.
3. ``job`` has the public function, and the operation of a job in parts.
"""
