"""One value per provider: its URLs and names, limits, settings, identity, and how to open one of its buckets."""
