"""insitubatch over obstore: chunks shuffled within blocks, in batches of NumPy."""

from epochs import BATCH, WINDOW, consume, opened
from insitubatch import InSituDataset, open_geometries, split_by_chunk
from objectstore import store
from zarr.storage import ObjectStore

meter, name = opened()
folder, _, name = name.partition("/")
place = ObjectStore(store(meter, folder), read_only=True)
geometries = open_geometries(place, [name])
manifest = split_by_chunk(geometries[name], fractions=(1.0, 0.0, 0.0))
fields = InSituDataset(
    place, manifest, geometries, batch_size=BATCH, block_chunks=WINDOW, max_inflight=meter.threads, shuffle=True
)


def epochs():
    number = 0
    while True:
        fields.set_epoch(number)
        yield (batch.arrays[name] for batch in fields.train)
        number += 1


consume(meter, epochs())
