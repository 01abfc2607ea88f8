"""Operations: one verb of a driver each, retried until it is done. Below reads, writes and ``fetch``.

1. ``operation`` carries out one verb, attempt by attempt; ``read/`` has those that read bytes.
2. ``policy`` decides after a failure: a delay, or an error; all operations of a store share its tokens.
"""
