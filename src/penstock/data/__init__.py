"""Samples: catalogs of objects, the order of an epoch, and batches decoded from them, with resumable state."""
