"""Contracts between drivers, transports, credentials and the engine: protocols and values, no algorithm.

1. ``driver``: verbs of a store's dialect. A verb returns an ``Exchange`` and sends nothing.
2. ``exchange``: its ``Request`` and ``Response``; the ``Operation`` that a ``Transport`` carries; what may hold it back
   (``Gate``) or watch it (``Watch``).
3. ``fetching``: reads as their callers see them, over an engine or over a cache before it.
4. ``credentials``: who signs, and how keys are kept fresh.
"""
