"""Every public name of gcs-torch-dataflux 1.4.0 and its parameters, as that package has them, stands in the drop-in."""

from __future__ import annotations

import importlib
import inspect

import pytest

VERSION = "1.4.0"
_DATASET = ("project_name", "bucket_name", "config", "data_format_fn", "storage_client")
_CONFIG = ("sort_listing_results", "max_composite_object_size", "num_processes", "prefix", "max_listing_retries")
_RETRIES = ("disable_compose", "list_retry_config", "download_retry_config")
_LIGHTNING = ("project_name", "storage_client", "disable_multipart")
_DISTRIBUTED = ("path", "project_name", "storage_client", "debug")
# Module, class or function and member -> parameters; "" is the class itself.
NAMES: dict[tuple[str, str, str], tuple[str, ...]] = {
    ("dataflux_mapstyle_dataset", "Config", ""): (*_CONFIG, "threads_per_process", *_RETRIES),
    ("dataflux_mapstyle_dataset", "DataFluxMapStyleDataset", ""): _DATASET,
    ("dataflux_mapstyle_dataset", "data_format_default", ""): ("data",),
    ("dataflux_iterable_dataset", "Config", ""): (*_CONFIG, *_RETRIES),
    ("dataflux_iterable_dataset", "DataFluxIterableDataset", ""): _DATASET,
    ("dataflux_iterable_dataset", "data_format_default", ""): ("data",),
    ("dataflux_checkpoint", "DatafluxCheckpoint", ""): ("project_name", "bucket_name", "storage_client"),
    ("dataflux_checkpoint", "DatafluxCheckpoint", "reader"): ("object_name",),
    ("dataflux_checkpoint", "DatafluxCheckpoint", "writer"): ("object_name",),
    ("dataflux_checkpoint", "DatafluxCheckpointBuffer", "close"): (),
    ("lightning", "DatafluxLightningCheckpoint", ""): _LIGHTNING,
    ("lightning", "DatafluxLightningCheckpoint", "save_checkpoint"): ("checkpoint", "path", "storage_options"),
    ("lightning", "DatafluxLightningCheckpoint", "load_checkpoint"): ("path", "map_location"),
    ("lightning", "DatafluxLightningCheckpoint", "remove_checkpoint"): ("path",),
    ("lightning", "DatafluxLightningCheckpoint", "teardown"): (),
    ("lightning", "DatafluxLightningAsyncCheckpoint", ""): _LIGHTNING,
    ("lightning", "DatafluxLightningAsyncCheckpoint", "teardown"): (),
    ("lightning", "GCSDistributedReader", ""): _DISTRIBUTED,
    ("lightning", "GCSDistributedWriter", ""): (*_DISTRIBUTED, "kwargs"),
    ("lightning", "GCSFileSystem", ""): ("project_name", "debug", "storage_client"),
    **{("lightning", "GCSFileSystem", each): ("path",) for each in ("exists", "init_path", "mkdir", "rm_file")},
    ("lightning", "GCSFileSystem", "concat_path"): ("path", "suffix"),
    ("lightning", "GCSFileSystem", "create_stream"): ("path", "mode"),
    ("lightning", "GCSFileSystem", "rename"): ("path", "new_path"),
    ("lightning", "GCSFileSystem", "validate_checkpoint_id"): ("checkpoint_id",),
    ("lightning.gcs_filesystem", "GCSDistributedReader", ""): _DISTRIBUTED,
    ("lightning.gcs_filesystem", "GCSDistributedWriter", ""): (*_DISTRIBUTED, "kwargs"),
    ("lightning.gcs_filesystem", "GCSFileSystem", ""): ("project_name", "debug", "storage_client"),
    ("multipart_upload.multipart", "upload_chunks_concurrently_from_bytesio", ""): (
        *("bytesio", "blob", "content_type", "chunk_size", "deadline", "max_workers", "checksum", "timeout", "retry"),
    ),
    ("lightning.dataflux_lightning_checkpoint", "DatafluxLightningCheckpoint", ""): _LIGHTNING,
}


@pytest.mark.parametrize(("module", "name", "member"), NAMES, ids=lambda each: each or "-")
def test_a_name_of_the_original_is_there_with_its_parameters(module, name, member):
    home = importlib.import_module(f"penstock.compat.dataflux_pytorch.{module}")
    assert name in home.__all__
    found, expected = getattr(home, name), NAMES[module, name, member]
    parameters = [*inspect.signature(getattr(found, member) if member else found).parameters]
    parameters = parameters[1:] if parameters[:1] == ["self"] else parameters
    assert tuple(parameters[: len(expected)]) == expected


def test_the_version_is_that_of_the_interface():
    from penstock.compat import dataflux_pytorch

    assert f"those of gcs-torch-dataflux {VERSION}" in str(dataflux_pytorch.__doc__)
