"""Penstock: train PyTorch straight from any object store, as if the data were local."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.config.profiles.sinks import opened_by
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.bulk.find import find
    from penstock.bulk.presign import presign
    from penstock.bulk.sync import sync
    from penstock.bulk.warm import warm
    from penstock.cache.opening import open_cache
    from penstock.cache.tiers import Cache
    from penstock.catalog.catalog import Catalog
    from penstock.catalog.glob import glob
    from penstock.catalog.index import index
    from penstock.checkpoint.run.background import AsyncCheckpointer
    from penstock.checkpoint.run.steps import CheckpointManager
    from penstock.checkpoint.safetensors.verbs import load_safetensors, open_safetensors, save_safetensors
    from penstock.checkpoint.torchfile.checkpoint import Checkpoint
    from penstock.checkpoint.torchfile.verbs import load, save
    from penstock.config.profiles.sinks import NamedSinks
    from penstock.datasets.iterable import IterableDataset
    from penstock.datasets.map import MapDataset
    from penstock.datasets.positions.stateful import elastic_state
    from penstock.datasets.sample import Sample
    from penstock.datasets.sampler import BatchSampler
    from penstock.datasets.zarr.dataset import ZarrDataset
    from penstock.errors import PenstockError
    from penstock.interop.path import Path
    from penstock.loading.loader import DataLoader
    from penstock.loading.report.group import GroupReport, merge_reports
    from penstock.loading.report.loaderreport import LoaderReport
    from penstock.loading.report.summary import Prices
    from penstock.node.member import node_status
    from penstock.options import (
        CacheOptions,
        FsspecOptions,
        GCSOptions,
        HTTPOptions,
        NodeOptions,
        OSSOptions,
        ReadOptions,
        RetryOptions,
        S3Options,
        StoreOptions,
        TransportOptions,
        WriteOptions,
    )
    from penstock.order.blocks import BlockShuffle
    from penstock.order.lanes import Lanes
    from penstock.order.partition import Repeat
    from penstock.protocols.credentials import BearerToken, Credentials
    from penstock.values import ObjectMeta, Place
    from penstock.verbs import copy, delete, list, open, stat  # noqa: A004  always named as ps.open, ps.list

__version__ = VERSION

# Everything is loaded when it is first named: `import penstock` costs milliseconds and never loads torch.
_HOMES = {
    "AsyncCheckpointer": "checkpoint.run.background",
    "AzureOptions": "options",
    "BatchSampler": "datasets.sampler",
    "BearerToken": "protocols.credentials",
    "BlockShuffle": "order.blocks",
    "Cache": "cache.tiers",
    "CacheOptions": "options",
    "Catalog": "catalog.catalog",
    "Checkpoint": "checkpoint.torchfile.checkpoint",
    "CheckpointManager": "checkpoint.run.steps",
    "Credentials": "protocols.credentials",
    "DataLoader": "loading.loader",
    "LoaderReport": "loading.report.loaderreport",
    "Prices": "loading.report.summary",
    "GCSOptions": "options",
    "FsspecOptions": "options",
    "GroupReport": "loading.report.group",
    "HTTPOptions": "options",
    "OSSOptions": "options",
    "IterableDataset": "datasets.iterable",
    "Lanes": "order.lanes",
    "MapDataset": "datasets.map",
    "NodeOptions": "options",
    "ObjectMeta": "values",
    "Path": "interop.path",
    "PenstockError": "errors",
    "Place": "values",
    "ReadOptions": "options",
    "Repeat": "order.partition",
    "RetryOptions": "options",
    "S3Options": "options",
    "Sample": "datasets.sample",
    "StoreOptions": "options",
    "TransportOptions": "options",
    "WriteOptions": "options",
    "ZarrDataset": "datasets.zarr.dataset",
    "copy": "verbs",
    "delete": "verbs",
    "elastic_state": "datasets.positions.stateful",
    "find": "bulk.find",
    "glob": "catalog.glob",
    "index": "catalog.index",
    "list": "verbs",
    "load": "checkpoint.torchfile.verbs",
    "load_safetensors": "checkpoint.safetensors.verbs",
    "merge_reports": "loading.report.group",
    "node_status": "node.member",
    "open": "verbs",
    "open_cache": "cache.opening",
    "open_safetensors": "checkpoint.safetensors.verbs",
    "presign": "bulk.presign",
    "save": "checkpoint.torchfile.verbs",
    "save_safetensors": "checkpoint.safetensors.verbs",
    "stat": "verbs",
    "sync": "bulk.sync",
    "warm": "bulk.warm",
}

__all__ = [
    "AsyncCheckpointer",
    "AzureOptions",
    "BatchSampler",
    "BearerToken",
    "BlockShuffle",
    "Cache",
    "CacheOptions",
    "Catalog",
    "Checkpoint",
    "CheckpointManager",
    "Credentials",
    "DataLoader",
    "FsspecOptions",
    "GCSOptions",
    "GroupReport",
    "HTTPOptions",
    "IterableDataset",
    "Lanes",
    "LoaderReport",
    "MapDataset",
    "NodeOptions",
    "OSSOptions",
    "ObjectMeta",
    "Path",
    "PenstockError",
    "Place",
    "Prices",
    "ReadOptions",
    "Repeat",
    "RetryOptions",
    "S3Options",
    "Sample",
    "StoreOptions",
    "TransportOptions",
    "WriteOptions",
    "ZarrDataset",
    "copy",
    "delete",
    "elastic_state",
    "find",
    "glob",
    "index",
    "list",
    "load",
    "load_safetensors",
    "merge_reports",
    "node_status",
    "open",
    "open_cache",
    "open_safetensors",
    "presign",
    "save",
    "save_safetensors",
    "stat",
    "sync",
    "warm",
]


def __getattr__(name: str) -> object:
    """Load a public name from its home at first use."""
    if name not in _HOMES:
        message = f"module 'penstock' has no attribute {name!r}"
        raise AttributeError(message)
    value = getattr(import_module(f"penstock.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> Iterable[str]:
    """Complete public names."""
    return sorted(__all__)


if os.environ.get("PENSTOCK_OBSERVE"):
    from penstock.observe.environment import begin

    begin(os.environ)
    del begin


def _open_sinks(named: NamedSinks) -> None:
    """Open what a profile names; the sinks are loaded only then."""
    from penstock.observe.environment import begin_named

    begin_named(named)


opened_by(_open_sinks)
del opened_by
