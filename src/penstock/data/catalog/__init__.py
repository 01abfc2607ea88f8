"""Catalogs: the objects of a dataset, found by listing or read from a file, frozen in one table.

1. ``catalog`` is the public class; ``discovery/`` finds the objects for it.
2. ``columns/table`` collects the rows; ``columns/`` packs them into memory that workers map.
3. ``groups`` forms samples of several objects, and ``labels`` makes classes, both of keys.
4. ``rows`` selects rows for slices, filters and splits, without copying them; ``contents`` shows them.
5. ``saved`` writes the table to a file as it is in memory, verifies every byte of a file that is opened, and puts its
   names below the URL of a copy.
6. ``comparison`` finds the differences of two catalogs, and makes the identity that counts versions.
"""
