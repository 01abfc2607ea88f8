"""Catalogs: the objects of a dataset, found by listing or read from a file, frozen in one table.

1. ``catalog`` is the public class. ``scan`` lists a prefix for it; a listing resumes from its ``journal``.
2. ``manifest`` and ``inventory`` read the objects from a file instead.
3. ``columns/table`` collects the rows; ``columns/`` packs them into memory that workers map.
4. ``groups`` forms samples of several objects, and ``labels`` makes classes, both of keys.
5. ``rows`` selects rows for slices, filters and splits, without copying them; ``contents`` shows them.
6. ``saved`` writes the table to a file as it is in memory, and verifies every byte of a file that is opened;
   ``relocation`` puts its names below the URL of a copy.
"""
