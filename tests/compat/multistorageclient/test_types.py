"""Values of Multi-Storage Client."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime

import pytest

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.types import ObjectMetadata, SyncResult, convert_metadata, directory
from penstock.errors import NotFound, PreconditionFailed, Throttled, Unsupported
from penstock.values import ObjectMeta
from tests.compat.test_originals import ORIGINALS

META = ObjectMeta("k", 3, "tag", 1e9, "s3://b/k", {"by": "us", "penstockwrite": "x"}, "text/plain")


def test_object_metadata_is_built_from_the_known_fields():
    found = convert_metadata(META, "key")
    assert found == ObjectMetadata(
        "key",
        3,
        datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC),
        content_type="text/plain",
        etag="tag",
        metadata={"by": "us"},
    )
    assert convert_metadata(ObjectMeta("k", 3), "k").last_modified == directory("d/").last_modified


def test_a_description_is_written_and_read():
    for each in (convert_metadata(META, "key"), directory("d/")):
        assert ObjectMetadata.from_dict(each.to_dict()) == each
    assert convert_metadata(META, "key").replace(key="x").key == "x"
    with pytest.raises(ValueError, match="content_length"):
        ObjectMetadata.from_dict({"key": "k"})


def test_a_result_of_nothing_is_zeros():
    assert (SyncResult().total_files_added, SyncResult().dryrun) == (0, None)


@pytest.mark.parametrize(
    ("name", "raised"),
    [("PreconditionFailedError", PreconditionFailed), ("RetryableError", Throttled), ("SyncError", NotFound)],
)
def test_errors_are_caught_by_the_names_of_the_original(name, raised):
    with pytest.raises(getattr(msc.types, name)):
        raise raised("text")


@pytest.mark.parametrize("name", ["Credentials", "StorageProvider", "MetadataProvider", "RetryConfig", "Replica"])
def test_omitted_types_raise_unsupported_with_an_alternative(name):
    with pytest.raises(Unsupported, match=rf"{name} is not a part of penstock.compat.multistorageclient.types: \w+"):
        getattr(msc.types, name)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(msc.types, "Nothing")  # noqa: B009  as a program imports it


# Modules that the original has below ``contrib``: names and parameters; ``test_originals`` compares the others.
NAMES = {
    "os.makedirs": "name mode exist_ok",
    "os.path.exists": "path",
    "os.path.isdir": "path strict",
    "os.path.isfile": "path",
    "numpy.load": "args kwargs",
    "numpy.save": "args kwargs",
    "numpy.memmap": "args kwargs",
    "pickle.load": "file",
    "pickle.dump": "obj file_path protocol fix_imports buffer_callback attributes",
    "torch.load": "f args kwargs",
    "torch.save": "obj f args kwargs",
    "torch.MultiStorageFileSystem": "",
    "torch.MultiStorageFileSystemReader": "path thread_count",
    "torch.MultiStorageFileSystemWriter": "path single_file_per_rank sync_files thread_count per_thread_copy_ahead "
    "cache_staged_state_dict overwrite",
    # 0.20
    "zarr.open_consolidated": "args kwargs",
    "xarray.open_zarr": "args kwargs",
}
LEFT_OUT = (
    *("CacheConfig", "ProviderBundleV2", "StorageBackend", "ResolvedPath", "ResolvedPathState"),
    *("StorageClientConfig.from_provider_bundle", "make_symlink", "sync_replicas"),
    *("StorageClient.make_symlink", "StorageClient.sync_replicas"),
)
MODULES_LEFT_OUT = ("async_fs", "hydra", "ray")


def found(name):
    value = msc
    for each in name.split("."):
        value = getattr(value, each)
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_the_original_takes_its_parameters(name):
    assert set(NAMES[name].split()) <= set(inspect.signature(found(name)).parameters)


@pytest.mark.parametrize("name", LEFT_OUT)
def test_omitted_names_raise_unsupported_with_an_alternative(name):
    words = (object(), "/a", "/b") if name.startswith("StorageClient.") else ("/a", "/b")
    with pytest.raises(Unsupported, match=r"is not a part of penstock.compat.multistorageclient: \w+"):
        found(name)(*words)


@pytest.mark.parametrize("name", MODULES_LEFT_OUT)
def test_omitted_modules_raise_unsupported_with_an_alternative(name):
    with pytest.raises(Unsupported, match=rf"{name} is not a part of penstock.compat.multistorageclient: \w+"):
        found(name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no_such"):
        found("no_such")


def test_nothing_else_is_exported():
    assert set(msc.__all__) == {*ORIGINALS["multistorageclient"]["modules"][""]}
