"""The cache on disk as a program sees it, and what the processes of a node share."""

from penstock.engine.cache.tiers import Cache, open_cache
from penstock.engine.node.member import node_status

__all__ = ["Cache", "node_status", "open_cache"]
