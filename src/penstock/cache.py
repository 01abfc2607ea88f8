"""Inspection of the cache on disk, and of the resources that the processes of a node share."""

from penstock.engine.cache.tiers import Cache, open_cache
from penstock.engine.node.member import node_status

__all__ = ["Cache", "node_status", "open_cache"]
