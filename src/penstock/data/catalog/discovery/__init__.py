"""Ways to find the objects of a dataset and fill a table: a listing, a file of names, or a walk through shards.

1. ``scan`` lists a prefix in parallel; ``inventory`` reads the store's own list of it instead. ``links`` finds the
   links in a local folder that a listing does not follow.
2. ``manifest`` reads a file that names objects.
3. ``shards`` walks shards for their samples; ``stated`` compares them with the index of an MDS folder.
4. ``journal`` keeps the results of a listing or a walk so far, to resume from.
"""
