"""Operations on one store, sent, retried and waited for. Knows neither HTTP nor S3.

1. ``fetcher`` is a store's engine: it prepares reads and verbs, sends them over the transport, and calls them off.
2. ``operation`` carries out one verb, attempt by attempt; ``read/`` has the reads.
3. ``policy`` decides after a failure: a delay, or an error; all operations of the store share its tokens.
4. ``batch`` prepares many operations that are sent together.
5. ``pages`` lists page by page, each verified by ``listing/``.
"""
