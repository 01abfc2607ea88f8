"""The settings of the README of Google's Connector for PyTorch; the import is changed, and nothing else."""

import os

from google.cloud.storage.retry import DEFAULT_RETRY

from penstock.compat.dataflux_pytorch import dataflux_mapstyle_dataset

PROJECT_NAME = os.environ.get("PROJECT_NAME", "project")
BUCKET_NAME = os.environ["BUCKET_NAME"]
PREFIX = "images/"

# Nothing is composed.
dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        max_composite_object_size=0,
        disable_compose=True,
    ),
)
print(len(dataset), "objects")

# Patient with a project that is over its quota.
dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(
        prefix=PREFIX,
        max_composite_object_size=0,
        list_retry_config=DEFAULT_RETRY.with_deadline(300.0).with_delay(initial=1.0, multiplier=1.2, maximum=45.0),
        download_retry_config=DEFAULT_RETRY.with_deadline(600.0).with_delay(initial=1.0, multiplier=1.5, maximum=90.0),
    ),
)
print(sum(map(len, dataset)), "bytes")
