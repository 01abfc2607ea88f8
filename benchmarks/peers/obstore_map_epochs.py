"""A map-style data set over zarr and obstore in torch's DataLoader with two spawned workers."""

import torch
import zarr
from epochs import BATCH, consume, opened
from objectstore import store
from torch.utils.data import DataLoader, Dataset
from zarr.storage import ObjectStore


class Fields(Dataset):
    """One sample of zarr's for each index."""

    def __init__(self):
        self.array = None
        self.count = len(opened()[0].keys)

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        if self.array is None:  # in the worker
            meter, name = opened()
            self.array = zarr.open_array(ObjectStore(store(meter, name), read_only=True), mode="r")
        return torch.from_numpy(self.array[index])


if __name__ == "__main__":
    meter, _ = opened()
    loader = DataLoader(
        Fields(), BATCH, shuffle=True, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    consume(meter, ((batch.numpy() for batch in loader) for _ in iter(int, 1)))
