"""Reads: verified, resumed after an interruption, hedged, and ahead of the caller.

1. ``reader`` is a file over one version of an object, and reads what it needs now; ``lookahead`` iterates over many
   objects and reads ahead within a budget.
2. ``fetch/fetcher`` makes an operation of each span: ``spanread`` where its bounds are known (in parts if it is long),
   ``openread`` for whole objects and ends of unknown size.
3. ``spanread`` asks the driver for a request, takes the verified bytes, and continues a broken body from the byte that
   it reached, in the same version.
4. ``hedging`` watches for late reads and sends a second request; the first answer wins.
5. ``unranged`` reads an object once, whole, where a server ignores ``Range``, and cuts the spans out of it.
"""
