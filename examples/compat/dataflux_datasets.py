"""The datasets of the README of Google's Connector for PyTorch; the import is changed, and nothing else."""

import io
import os

import numpy as np
from PIL import Image
from torch.utils.data import DataLoader

from penstock.compat.dataflux_pytorch import dataflux_iterable_dataset, dataflux_mapstyle_dataset

PROJECT_NAME = os.environ.get("PROJECT_NAME", "project")
BUCKET_NAME = os.environ["BUCKET_NAME"]
PREFIX = "images/"

# Map-style dataset.
map_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
)

# Random access to an object.
sample_object = map_dataset.objects[0]

# Learn about the name and the size (in bytes) of the object.
name = sample_object[0]
size = sample_object[1]
print(name, size)

# Iterate over the datasets.
for each_object in map_dataset:
    # Raw bytes of the object.
    print("map", type(each_object).__name__, len(each_object))

# Iterable-style dataset.
iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_iterable_dataset.Config(prefix=PREFIX),
)
for each_object in iterable_dataset:
    print("iterable", type(each_object).__name__, len(each_object))


def transform(img_in_bytes):
    return np.asarray(Image.open(io.BytesIO(img_in_bytes)))


map_dataset = dataflux_mapstyle_dataset.DataFluxMapStyleDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
    data_format_fn=transform,
)
for each_object in map_dataset:
    # each_object is now a Numpy array.
    print("map", each_object.shape)

iterable_dataset = dataflux_iterable_dataset.DataFluxIterableDataset(
    project_name=PROJECT_NAME,
    bucket_name=BUCKET_NAME,
    config=dataflux_mapstyle_dataset.Config(prefix=PREFIX),
    data_format_fn=transform,
)
for batch in DataLoader(iterable_dataset, batch_size=2, num_workers=2):
    print("batch", tuple(batch.shape))
