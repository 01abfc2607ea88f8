"""Penstock: streaming of training data and checkpoints between PyTorch and object storage."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from penstock.errors import require_extras
from penstock.stores.profiles.sinks import opened_by
from penstock.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock import cache as cache
    from penstock import credentials as credentials
    from penstock import observe as observe
    from penstock import order as order
    from penstock.checkpoint.run.background import AsyncCheckpointer
    from penstock.checkpoint.run.steps import CheckpointManager
    from penstock.checkpoint.safetensors.verbs import (
        iter_safetensors,
        load_safetensors,
        open_safetensors,
        save_safetensors,
    )
    from penstock.checkpoint.torchfile.archive import Checkpoint
    from penstock.checkpoint.torchfile.verbs import load, save
    from penstock.data.catalog.catalog import Catalog
    from penstock.data.datasets.batched import BatchSampler
    from penstock.data.datasets.concat import concat
    from penstock.data.datasets.iterable import IterableDataset
    from penstock.data.datasets.map import MapDataset
    from penstock.data.datasets.mix import Mix
    from penstock.data.datasets.stateful import elastic_state
    from penstock.data.lerobot.dataset import LeRobotDataset
    from penstock.data.loading.loader import DataLoader
    from penstock.data.reading.sample import Sample
    from penstock.data.tokens.batch import PackedBatch
    from penstock.data.tokens.dataset import TokenDataset
    from penstock.data.video.audio_dataset import AudioClip, AudioDataset
    from penstock.data.video.dataset import Clip, VideoDataset
    from penstock.data.zarr.dataset import ZarrDataset
    from penstock.data.zarr.statistics.record import ZarrStatistics
    from penstock.errors import PenstockError
    from penstock.interop.path import Path
    from penstock.jobs.index import index
    from penstock.jobs.mapping.job import map  # noqa: A004  the field's word
    from penstock.jobs.packing.job import pack
    from penstock.jobs.parts.carriers import Ray
    from penstock.jobs.syncing.job import copy_tree, sync
    from penstock.jobs.syncing.verify import verify
    from penstock.jobs.trees.find import find, presign
    from penstock.jobs.warm import warm
    from penstock.options import (
        CacheOptions,
        NodeOptions,
        ReadOptions,
        RetryOptions,
        StoreOptions,
        TransportOptions,
        WriteOptions,
    )
    from penstock.stores.azure.options import AzureOptions
    from penstock.stores.fsspec.options import FsspecOptions
    from penstock.stores.gcs.options import GCSOptions
    from penstock.stores.huggingface.options import HFOptions
    from penstock.stores.obspec.options import ObspecOptions
    from penstock.stores.oss.options import OSSOptions
    from penstock.stores.profiles.sinks import NamedSinks
    from penstock.stores.s3.options import S3Options
    from penstock.stores.web.options import HTTPOptions
    from penstock.values import ObjectMeta, Place
    from penstock.verbs import copy, delete, glob, list, open, stat  # noqa: A004  always named as ps.open, ps.list

__version__ = VERSION

# Names are loaded on first use: `import penstock` costs milliseconds and never loads torch.
_HOMES = {
    "AsyncCheckpointer": "checkpoint.run.background",
    "AudioClip": "data.video.audio_dataset",
    "AudioDataset": "data.video.audio_dataset",
    "AzureOptions": "stores.azure.options",
    "BatchSampler": "data.datasets.batched",
    "CacheOptions": "options",
    "Catalog": "data.catalog.catalog",
    "Checkpoint": "checkpoint.torchfile.archive",
    "CheckpointManager": "checkpoint.run.steps",
    "Clip": "data.video.dataset",
    "DataLoader": "data.loading.loader",
    "GCSOptions": "stores.gcs.options",
    "FsspecOptions": "stores.fsspec.options",
    "HFOptions": "stores.huggingface.options",
    "HTTPOptions": "stores.web.options",
    "ObspecOptions": "stores.obspec.options",
    "OSSOptions": "stores.oss.options",
    "IterableDataset": "data.datasets.iterable",
    "LeRobotDataset": "data.lerobot.dataset",
    "MapDataset": "data.datasets.map",
    "Mix": "data.datasets.mix",
    "NodeOptions": "options",
    "ObjectMeta": "values",
    "PackedBatch": "data.tokens.batch",
    "Path": "interop.path",
    "PenstockError": "errors",
    "Place": "values",
    "Ray": "jobs.parts.carriers",
    "ReadOptions": "options",
    "RetryOptions": "options",
    "S3Options": "stores.s3.options",
    "Sample": "data.reading.sample",
    "StoreOptions": "options",
    "TokenDataset": "data.tokens.dataset",
    "TransportOptions": "options",
    "VideoDataset": "data.video.dataset",
    "WriteOptions": "options",
    "ZarrDataset": "data.zarr.dataset",
    "ZarrStatistics": "data.zarr.statistics.record",
    "concat": "data.datasets.concat",
    "copy": "verbs",
    "copy_tree": "jobs.syncing.job",
    "delete": "verbs",
    "elastic_state": "data.datasets.stateful",
    "find": "jobs.trees.find",
    "glob": "verbs",
    "index": "jobs.index",
    "iter_safetensors": "checkpoint.safetensors.verbs",
    "list": "verbs",
    "load": "checkpoint.torchfile.verbs",
    "load_safetensors": "checkpoint.safetensors.verbs",
    "open": "verbs",
    "open_safetensors": "checkpoint.safetensors.verbs",
    "map": "jobs.mapping.job",
    "pack": "jobs.packing.job",
    "presign": "jobs.trees.find",
    "save": "checkpoint.torchfile.verbs",
    "save_safetensors": "checkpoint.safetensors.verbs",
    "stat": "verbs",
    "sync": "jobs.syncing.job",
    "verify": "jobs.syncing.verify",
    "warm": "jobs.warm",
}

# Further public names, by subject: ``ps.order.Lanes``.
_MODULES = {"cache", "credentials", "observe", "order"}

__all__ = [
    "AsyncCheckpointer",
    "AudioClip",
    "AudioDataset",
    "AzureOptions",
    "BatchSampler",
    "CacheOptions",
    "Catalog",
    "Checkpoint",
    "CheckpointManager",
    "Clip",
    "DataLoader",
    "FsspecOptions",
    "GCSOptions",
    "HFOptions",
    "HTTPOptions",
    "IterableDataset",
    "LeRobotDataset",
    "MapDataset",
    "Mix",
    "NodeOptions",
    "OSSOptions",
    "ObjectMeta",
    "ObspecOptions",
    "PackedBatch",
    "Path",
    "PenstockError",
    "Place",
    "Ray",
    "ReadOptions",
    "RetryOptions",
    "S3Options",
    "Sample",
    "StoreOptions",
    "TokenDataset",
    "TransportOptions",
    "VideoDataset",
    "WriteOptions",
    "ZarrDataset",
    "ZarrStatistics",
    "concat",
    "copy",
    "copy_tree",
    "delete",
    "elastic_state",
    "find",
    "glob",
    "index",
    "iter_safetensors",
    "list",
    "load",
    "load_safetensors",
    "map",
    "open",
    "open_safetensors",
    "pack",
    "presign",
    "save",
    "save_safetensors",
    "stat",
    "sync",
    "verify",
    "warm",
]


# Names that newcomers look for here.
_ELSEWHERE = {
    **{name: f"order.{name}" for name in ("Lanes", "BlockShuffle", "WeightedShuffle", "Schedule", "Repeat")},
    **{name: f"observe.{name}" for name in ("headroom", "merge_reports")},
    "Credentials": "credentials.Credentials",
    "Dataset": "MapDataset",
    **{name: f"MapDataset.{name}" for name in ("from_prefix", "from_shards", "from_manifest", "from_objects")},
    "StreamingDataset": "MapDataset",
    "cp": "copy",
    "exists": "stat",
    "ls": "list",
    "read": "open(url).read()",
    "rm": "delete",
    "write": "open(url, 'w')",
}


def _suggest_name(name: str) -> str:
    from difflib import get_close_matches

    if name in _ELSEWHERE:
        return f": write ps.{_ELSEWHERE[name]}"
    known = {each.lower(): each for each in [*__all__, *_MODULES]}
    near = get_close_matches(name.lower(), known, 1, 0.8)
    return f": did you mean ps.{known[near[0]]}?" if near else ""


# A type checker reports any name that is not imported above.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Return a public name, loaded from its module on first use."""
        if name in _MODULES:
            return import_module(f"penstock.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module 'penstock' has no attribute {name!r}{_suggest_name(name)}")
        with require_extras(f"ps.{name} needs torch", torch="torch"):
            value = getattr(import_module(f"penstock.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> Iterable[str]:
    """Return the public names, for completion."""
    return sorted([*__all__, *_MODULES])


if os.environ.get("PENSTOCK_OBSERVE"):
    from penstock.observe.environment import begin

    begin(os.environ)
    del begin


def _open_sinks(named: NamedSinks) -> None:
    """Open the sinks that a profile names; their modules are imported only here."""
    from penstock.observe.environment import begin_named

    begin_named(named)


opened_by(_open_sinks)
del opened_by
