"""Options of stores: frozen values, whose fields document their unit, their default and its origin."""

from penstock.options.cache import CacheOptions
from penstock.options.parts import NodeOptions, ReadOptions, RetryOptions, StoreOptions, TransportOptions, WriteOptions
from penstock.options.private import PUBLIC as PUBLIC  # for providers of other distributions

__all__ = [
    "CacheOptions",
    "NodeOptions",
    "ReadOptions",
    "RetryOptions",
    "StoreOptions",
    "TransportOptions",
    "WriteOptions",
]
