"""What peers that read arrays share: zarr over a store of theirs, for the whole array or chunk by chunk."""

import asyncio
from collections import deque

import zarr
from meter import Meter
from zarr.core.buffer import default_buffer_prototype


def whole(make):
    """Read the array with zarr at the concurrency that the task asks for; ``make(meter, name)`` returns a store."""
    meter, store = _opened(make)
    array = zarr.open_array(store, mode="r")
    with zarr.config.set({"async.concurrency": meter.threads}), meter:
        meter.check_array(array[:])


def gets(make):
    """Read each chunk as zarr does, undecoded, so many at once."""
    meter, store = _opened(make)
    prototype = default_buffer_prototype()

    async def reader(keys):
        while keys:
            key = keys.popleft()
            found = await store.get(key.partition("/")[2], prototype)
            meter.check(key, found.to_bytes() if key in meter.sampled else found)

    async def run():
        await store.get("zarr.json", prototype)
        keys = deque(meter.keys)
        with meter:
            await asyncio.gather(*(reader(keys) for _ in range(meter.threads)))

    asyncio.run(run())


def _opened(make):
    meter = Meter()
    return meter, make(meter, meter.keys[0].partition("/")[0])
