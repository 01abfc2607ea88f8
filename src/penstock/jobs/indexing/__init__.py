"""``ps.index``: a catalog of a prefix or of shards, saved. ``index`` walks here, ``job`` in parts on many machines."""
