"""Map: samples of a source through a function into shards, in parts.

1. ``pieces`` cuts the source into parts, and reads the samples of one.
2. ``function`` calls the function for them, and counts what became of each sample.
3. ``outputs`` writes what it returned as the shard of the part, and the catalog of all shards.
4. ``job`` has the public function, and the operation in parts.
"""
