"""Operations on one store, sent, retried and waited for. Independent of HTTP and S3.

1. ``fetcher`` is a store's engine: it prepares reads and verbs, sends them over the transport, and calls them off.
2. ``batch`` prepares many operations that are sent together.
3. ``pages`` lists page by page, each verified by ``listing/``.

The operations themselves are in ``operations/`` (verbs) and ``read/`` (spans of bytes).
"""
