"""Cache of objects and blocks in memory and on disk, shared by all processes of a machine, before a store's reads.

1. ``layer`` takes a read, divides it into parts and looks each up; hits cost no request.
2. ``tiers`` looks in memory first, then in the directory; ``entry`` names a part and checks its checksums.
3. ``files`` reads and writes the entries' files; an entry that differs from the written one counts as missing.
4. ``layer`` fetches missing parts below; readers of the same part wait for one request.
5. ``disk`` admits fetched entries and evicts others, as ``evict`` decides; ``ledger`` counts the bytes of all
   processes.
"""
