"""Every public name of multi-storage-client 1.3.1 is here, with its parameters; those left out say what to use."""

from __future__ import annotations

import inspect

import pytest

from penstock.compat import multistorageclient as msc
from penstock.errors import Unsupported

# multi-storage-client 1.3.1: ``__all__`` of the package, and public methods; parameters without ``self``.
SHARED_LIST = (
    "start_after end_at include_directories attribute_filter_expression show_attributes patterns symlink_handling"
)
SYNC = "execution_mode patterns preserve_source_attributes ignore_hidden dryrun dryrun_output_path symlink_handling"
NAMES = {
    "Path": "path",
    "SignerType": "",
    "SymlinkHandling": "",
    "SyncResult": "total_work_units total_files_added total_files_deleted total_bytes_added total_bytes_deleted "
    "total_time_seconds dryrun",
    "DryrunResult": "files_to_add files_to_delete",
    "StorageClient": "config",
    "StorageClientConfig.from_file": "config_file_paths profile telemetry_provider",
    "StorageClientConfig.from_dict": "config_dict profile skip_validation telemetry_provider",
    "StorageClientConfig.from_json": "config_json profile telemetry_provider",
    "StorageClientConfig.from_yaml": "config_yaml profile telemetry_provider",
    "StorageClientConfig.read_msc_config": "config_file_paths",
    "commit_metadata": "url",
    "delete": "url recursive",
    "download_file": "url local_path",
    "generate_presigned_url": "url method signer_type signer_options",
    "get_telemetry_provider": "",
    "glob": "pattern attribute_filter_expression",
    "info": "url",
    "is_empty": "url",
    "is_file": "url",
    "list": f"url {SHARED_LIST}",
    "list_recursive": "url start_after end_at max_workers look_ahead patterns symlink_handling",
    "open": "url mode kwargs",
    "resolve_storage_client": "url",
    "set_telemetry_provider": "telemetry_provider",
    "sync": f"source_url target_url delete_unmatched_files {SYNC}",
    "upload_file": "url local_path attributes",
    "write": "url body attributes",
    "StorageClient.read": "path byte_range check_source_version",
    "StorageClient.open": "path mode buffering encoding disable_read_cache memory_load_limit atomic "
    "check_source_version attributes prefetch_file",
    "StorageClient.write": "path body attributes",
    "StorageClient.copy": "src_path dest_path",
    "StorageClient.delete": "path recursive",
    "StorageClient.delete_many": "paths",
    "StorageClient.info": "path strict",
    "StorageClient.is_file": "path",
    "StorageClient.is_empty": "path",
    "StorageClient.is_default_profile": "",
    "StorageClient.get_posix_path": "path",
    "StorageClient.glob": "pattern include_url_prefix attribute_filter_expression",
    "StorageClient.list": f"path {SHARED_LIST} include_url_prefix",
    "StorageClient.list_recursive": "path start_after end_at max_workers look_ahead include_url_prefix patterns "
    "symlink_handling",
    "StorageClient.upload_file": "remote_path local_path attributes",
    "StorageClient.upload_files": "remote_paths local_paths attributes max_workers transfer_callback",
    "StorageClient.download_file": "remote_path local_path metadata",
    "StorageClient.download_files": "remote_paths local_paths metadata max_workers transfer_callback",
    "StorageClient.generate_presigned_url": "path method signer_type signer_options",
    "StorageClient.commit_metadata": "prefix",
    "StorageClient.sync_from": "source_client source_path target_path delete_unmatched_files description "
    f"num_worker_processes source_files commit_metadata {SYNC}",
    "Path.joinpath": "pathsegments",
    "Path.with_name": "name",
    "Path.with_stem": "stem",
    "Path.with_suffix": "suffix",
    "Path.with_segments": "pathsegments",
    "Path.relative_to": "other",
    "Path.is_relative_to": "other",
    "Path.as_posix": "",
    "Path.stat": "",
    "Path.lstat": "",
    "Path.exists": "",
    "Path.is_file": "strict",
    "Path.is_dir": "strict",
    "Path.open": "mode buffering encoding errors newline kwargs",
    "Path.read_bytes": "",
    "Path.read_text": "encoding errors",
    "Path.write_bytes": "data",
    "Path.write_text": "data encoding errors",
    "Path.iterdir": "",
    "Path.glob": "pattern",
    "Path.rglob": "pattern",
    "Path.touch": "mode exist_ok",
    "Path.mkdir": "mode parents exist_ok",
    "Path.rename": "target",
    "Path.unlink": "missing_ok",
    "Path.absolute": "",
    "Path.resolve": "strict",
    "Path.home": "",
    "Path.cwd": "",
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
    wanted = NAMES[name].split()
    if wanted:
        assert set(wanted) <= set(inspect.signature(found(name)).parameters)
    else:
        assert callable(found(name))


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
    names = {each for each in (*NAMES, *LEFT_OUT) if "." not in each}
    assert set(msc.__all__) == names | {"StorageClientConfig"}
