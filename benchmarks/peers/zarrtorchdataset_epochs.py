"""zarr-torch-dataset over zarr and obstore, with two spawned workers: everything is read before the first batch."""

import zarr
from epochs import BATCH, consume, opened
from objectstore import store
from zarr.storage import ObjectStore
from zarrdataset import ZarrDataLoader, ZarrIterableDataset

if __name__ == "__main__":
    meter, name = opened()
    samples = zarr.open_array(ObjectStore(store(meter, name), read_only=True), mode="r")
    fields = ZarrIterableDataset(samples=samples, targets=None, chunks_shuffle_seed=0)
    loader = ZarrDataLoader(dataset=fields, num_workers=2, batch_size=BATCH, multiprocessing_context="spawn")
    consume(meter, ((batch.numpy() for batch in loader) for _ in iter(int, 1)))
