"""Options of stores: frozen values, whose fields document their unit, their default and its origin."""

from penstock.options.cache import CacheOptions
from penstock.options.parts import NodeOptions, ReadOptions, RetryOptions, TransportOptions, WriteOptions
from penstock.options.private import PUBLIC as PUBLIC  # for providers of other distributions
from penstock.options.store import StoreOptions

__all__ = [
    "CacheOptions",
    "NodeOptions",
    "ReadOptions",
    "RetryOptions",
    "StoreOptions",
    "TransportOptions",
    "WriteOptions",
]
