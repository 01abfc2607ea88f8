"""Every public name of s3torchconnector 1.5.0 and its parameters, as that package has them, stands in the drop-in."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

VERSION = "1.5.0"
_READ = ("region", "endpoint", "transform", "s3client_config")
_NUMBERS = ("epoch_num", "min_prefix_length", "prefix_count")
# Module, class and member -> parameters; None for attributes; "" is the class itself.
NAMES: dict[tuple[str, str, str], Sequence[str] | None] = {
    ("", "__version__", ""): None,
    ("", "S3Exception", ""): ("message",),
    ("", "S3MapDataset", ""): (
        *("region", "get_dataset_objects", "endpoint", "transform", "s3client_config", "reader_constructor"),
    ),
    ("", "S3MapDataset", "from_objects"): ("object_uris", *_READ, "reader_constructor"),
    ("", "S3MapDataset", "from_prefix"): ("s3_uri", *_READ, "reader_constructor"),
    ("", "S3MapDataset", "region"): None,
    ("", "S3MapDataset", "endpoint"): None,
    ("", "S3IterableDataset", ""): (
        *("region", "get_dataset_objects", "endpoint", "transform", "s3client_config"),
        *("enable_sharding", "reader_constructor"),
    ),
    ("", "S3IterableDataset", "from_objects"): ("object_uris", *_READ, "enable_sharding", "reader_constructor"),
    ("", "S3IterableDataset", "from_prefix"): ("s3_uri", *_READ, "enable_sharding", "reader_constructor"),
    ("", "S3IterableDataset", "region"): None,
    ("", "S3IterableDataset", "endpoint"): None,
    ("", "S3Checkpoint", ""): ("region", "endpoint", "s3client_config"),
    ("", "S3Checkpoint", "reader"): ("s3_uri",),
    ("", "S3Checkpoint", "writer"): ("s3_uri",),
    ("", "S3ClientConfig", ""): (
        *("throughput_target_gbps", "part_size", "unsigned", "force_path_style", "max_attempts", "profile"),
    ),
    ("", "S3ReaderConstructor", "default"): (),
    ("", "S3ReaderConstructor", "sequential"): (),
    ("", "S3ReaderConstructor", "range_based"): ("buffer_size",),
    ("", "S3ReaderConstructor", "dcp_optimized"): ("max_gap_size",),
    ("", "S3ReaderConstructor", "get_reader_type_string"): ("constructor",),
    **dict.fromkeys((("", "S3Reader", each) for each in ("bucket", "key")), None),
    **dict.fromkeys((("", "S3Reader", each) for each in ("readable", "seekable", "writable", "tell", "close")), ()),
    **dict.fromkeys((("", "S3Reader", each) for each in ("read", "readinto", "seek")), ("…",)),  # by position
    **dict.fromkeys((("", "S3Writer", each) for each in ("close", "flush", "readable", "tell", "writable")), ()),
    ("", "S3Writer", "write"): ("…",),
    ("", "S3Writer", "closed"): None,
    ("dcp", "S3FileSystem", ""): ("region", "s3_client", "s3client_config", "reader_constructor"),
    **{("dcp", "S3FileSystem", each): ("path",) for each in ("exists", "init_path", "mkdir", "rm_file")},
    ("dcp", "S3FileSystem", "concat_path"): ("path", "suffix"),
    ("dcp", "S3FileSystem", "create_stream"): ("path", "mode"),
    ("dcp", "S3FileSystem", "rename"): ("…", "…"),  # torch's own class has other names for them
    ("dcp", "S3FileSystem", "validate_checkpoint_id"): ("checkpoint_id",),
    ("dcp", "S3StorageReader", ""): ("region", "path", "s3client_config", "reader_constructor"),
    ("dcp", "S3StorageReader", "prepare_local_plan"): ("plan",),
    ("dcp", "S3StorageReader", "validate_checkpoint_id"): ("checkpoint_id",),
    ("dcp", "S3StorageWriter", ""): ("region", "path", "s3client_config", "prefix_strategy", "thread_count", "kwargs"),
    ("dcp", "S3StorageWriter", "prepare_global_plan"): ("plans",),
    ("dcp", "S3StorageWriter", "validate_checkpoint_id"): ("checkpoint_id",),
    ("dcp", "S3PrefixStrategyBase", "generate_prefix"): ("rank",),
    ("dcp", "DefaultPrefixStrategy", ""): (),
    ("dcp", "NumericPrefixStrategy", ""): ("base", *_NUMBERS),
    ("dcp", "BinaryPrefixStrategy", ""): _NUMBERS,
    ("dcp", "HexPrefixStrategy", ""): _NUMBERS,
    ("dcp", "RoundRobinPrefixStrategy", ""): ("user_prefixes", "epoch_num"),
    ("lightning", "S3LightningCheckpoint", ""): ("region", "s3client_config", "endpoint"),
    ("lightning", "S3LightningCheckpoint", "save_checkpoint"): ("checkpoint", "path", "storage_options"),
    ("lightning", "S3LightningCheckpoint", "load_checkpoint"): ("path", "map_location", "weights_only"),
    ("lightning", "S3LightningCheckpoint", "remove_checkpoint"): ("path",),
    ("lightning", "S3LightningCheckpoint", "teardown"): (),
}


@pytest.mark.parametrize(("module", "name", "member"), NAMES, ids=lambda each: each or "-")
def test_a_name_of_the_original_is_there_with_its_parameters(module, name, member):
    home = importlib.import_module(".".join(filter(None, ["penstock.compat.s3torchconnector", module])))
    assert name in home.__all__
    found, expected = getattr(home, name), NAMES[module, name, member]
    if expected is None:
        assert not member or hasattr(found, member) or member in found.__annotations__
        return
    if "…" in expected:
        assert callable(getattr(found, member))
        return
    parameters = list(inspect.signature(getattr(found, member) if member else found).parameters)
    bound = inspect.isclass(found) and not (member and inspect.isfunction(inspect.getattr_static(found, member)))
    parameters = parameters if bound or parameters[:1] != ["self"] else parameters[1:]
    assert tuple(parameters[: len(expected)]) == tuple(expected)


def test_the_version_is_that_of_the_interface():
    from penstock.compat import s3torchconnector

    assert s3torchconnector.__version__ == VERSION
    assert f"those of {VERSION}" in str(s3torchconnector.__doc__)
