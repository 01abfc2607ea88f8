"""Listings, checked and divided: pure arithmetic on pages, without a request.

1. ``listing`` checks each page against its request: prefix, order, progress.
2. ``keyspace`` learns how keys are spread, divides the rest of a listing into parts that are listed at the same time,
   and yields their pages in order.
3. ``select`` keeps the keys that a dataset's globs match.
``fetch/pages`` makes the requests.
"""
