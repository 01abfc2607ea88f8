"""Columns in memory that workers map, and the table of entries made of them. They know no catalog.

1. ``column`` holds typed vectors in shared memory; ``compact`` stores texts and keys in few bytes.
2. ``units`` has the columns of samples in units of an object: a page, a compressed chunk.
3. ``table`` collects rows and packs them into columns.
"""
