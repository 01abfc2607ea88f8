"""xbatcher's map-style data set over xarray, zarr and obstore, in torch's DataLoader with two spawned workers."""

import xarray as xr
from epochs import BATCH, consume, opened
from objectstore import store
from torch.utils.data import DataLoader
from xbatcher import BatchGenerator
from xbatcher.loaders.torch import MapDataset
from zarr.storage import ObjectStore

if __name__ == "__main__":
    meter, name = opened()
    folder, _, name = name.partition("/")
    place = ObjectStore(store(meter, folder), read_only=True)
    fields = xr.open_zarr(place, chunks=None, consolidated=True)[name]
    samples = MapDataset(BatchGenerator(fields, {**fields.sizes, "time": 1}, preload_batch=False))
    loader = DataLoader(
        samples, BATCH, shuffle=True, num_workers=2, multiprocessing_context="spawn", persistent_workers=True
    )
    consume(meter, ((batch[:, 0].numpy() for batch in loader) for _ in iter(int, 1)))
