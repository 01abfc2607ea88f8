"""Every public name of osstorchconnector 1.2.3 is here, with its parameters; those left out say what to use."""

from __future__ import annotations

import inspect

import pytest

from penstock.compat import osstorchconnector
from penstock.errors import Unsupported

# osstorchconnector 1.2.3: names and parameters.
SHARED = "endpoint cred_path cred_provider config_path"
DATASET = f"{SHARED} transform region"
NAMES = {
    "OssMapDataset.from_prefix": f"oss_uri {DATASET}",
    "OssMapDataset.from_objects": f"object_uris {DATASET}",
    "OssMapDataset.from_manifest_file": f"manifest_file_path manifest_parser oss_base_uri {DATASET}",
    "OssIterableDataset.from_prefix": f"oss_uri {DATASET}",
    "OssIterableDataset.from_objects": f"object_uris {DATASET}",
    "OssIterableDataset.from_manifest_file": f"manifest_file_path manifest_parser oss_base_uri {DATASET}",
    "OssMapDataset.from_tar": f"tar_uri tar_index_uri {DATASET}",
    "OssMapDataset.is_continuous": "indices",
    "OssIterableDataset.from_tar": f"tar_uri tar_index_uri {DATASET} shuffle shuffle_chunk_size",
    "OssIterableDataset.shuffle": "generator",
    "OssCheckpoint": f"{SHARED} region",
    "OssCheckpoint.reader": "oss_uri",
    "OssCheckpoint.writer": "oss_uri",
    "OssSafetensor": f"{SHARED} region",
    "OssSafetensor.safe_open": "oss_uri device",
    "OssSafetensor.load_file": "oss_uri device",
    "OssSafetensor.save_file": "tensors oss_uri metadata",
    "OssDCPFileSystem": f"{SHARED} region",
    "OssDCPFileSystem.reader": "path",
    "OssDCPFileSystem.writer": "path kwargs",
    "OssDCPFileSystem.validate_checkpoint_id": "checkpoint_id",
    "OssStorageReader": "fs path",
    "OssStorageWriter": "fs path kwargs",
    "imagenet_manifest_parser": "reader",
}
POSITIONAL = {
    "OssCheckpoint",
    "OssSafetensor",
    "OssDCPFileSystem",
}  # endpoint, cred_path, config_path, cred_provider, …
LEFT_OUT = ("OssClient", "new_data_object", "generate_tar_archive")


def found(name):
    value = osstorchconnector
    for each in name.split("."):
        value = getattr(value, each)
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_connector_takes_its_parameters(name):
    parameters = list(inspect.signature(found(name)).parameters)
    assert set(NAMES[name].split()) <= {each for each in parameters if each != "self"}
    if name in POSITIONAL:
        assert parameters == ["endpoint", "cred_path", "config_path", "cred_provider", "region"]


@pytest.mark.parametrize("name", LEFT_OUT)
def test_omitted_names_raise_unsupported_with_an_alternative(name):
    with pytest.raises(Unsupported, match=r"is not a part of penstock.compat.osstorchconnector: \w+"):
        found(name)("oss://bucket/a", "x", "https://oss-cn-beijing.aliyuncs.com")


def test_nothing_else_is_exported():
    names = {each.partition(".")[0] for each in (*NAMES, *LEFT_OUT)}
    assert set(osstorchconnector.__all__) == names | {"DataObject", "OssMapDataset", "OssIterableDataset"}
