"""``penstock cache``: the cache on this machine, and filling it before a training."""
