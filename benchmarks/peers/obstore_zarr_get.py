"""obstore under zarr's ObjectStore: the chunks of an array, as zarr asks for them."""

from chunked import gets
from objectstore import store
from zarr.storage import ObjectStore

gets(lambda meter, name: ObjectStore(store(meter, name), read_only=True))
