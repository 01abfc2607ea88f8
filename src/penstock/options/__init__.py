"""Options of stores: frozen values, whose fields document their unit, their default and its origin.

1. ``private``: base classes. They check types, record which options were given, and neither show nor pickle secrets.
2. ``parts``: the classes that all stores share; a store's own class, in its folder, derives from ``StoreOptions``.
3. ``typed``: values of a profile, a command line or the environment become options; given options take precedence.
"""

from penstock.options.parts import (
    CacheOptions,
    NodeOptions,
    ReadOptions,
    RetryOptions,
    StoreOptions,
    TransportOptions,
    WriteOptions,
)
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
