"""Formats of shards, objects that hold many samples. Pure: bytes in, places of samples or fields of a sample out.

1. ``format`` is the contract. ``walk`` asks for byte ranges of a shard, and returns where its samples are.
2. ``data/catalog/discovery/shards`` runs the walks of many shards at once, and makes a catalog of the results.
3. A dataset reads ranges of shards as it reads objects, and ``sample`` turns the bytes of a range into fields.
4. ``keys`` groups the members of an archive to samples; ``tar`` and the other files hold one format each.
"""
