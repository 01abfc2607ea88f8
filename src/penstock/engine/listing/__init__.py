"""Listings, checked and divided: pure arithmetic on pages, without a request.

1. ``listing`` checks each page against its request: prefix, order, progress.
2. ``keyspace`` learns how keys are spread, divides the rest of a listing into parts that are listed at the same time,
   and yields their pages in order.
3. ``names`` has a page as columns, where numpy is loaded: one buffer and offsets.
4. ``select`` keeps the keys that a dataset's globs match.
``fetch/pages`` makes the requests.
"""
