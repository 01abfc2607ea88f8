"""``zarr.open_consolidated`` by URL and path."""

from __future__ import annotations

import numpy as np
import zarr

from penstock.compat import multistorageclient as msc
from penstock.compat.multistorageclient.zarr import wrap_store
from penstock.interop.zarr import Store


def test_a_group_is_opened_by_its_consolidated_metadata(base):
    group = zarr.open_group(Store(f"{base}/g.zarr"), mode="w", zarr_format=2)
    group.create_array("tas", data=np.arange(24.0).reshape(6, 4), chunks=(2, 4))
    zarr.consolidate_metadata(group.store)
    for path in (f"{base}/g.zarr", msc.Path(f"{base}/g.zarr")):
        found = msc.zarr.open_consolidated(path, msc_max_workers=4)
        assert found["tas"][2:4].sum() == np.arange(8, 16).sum()


def test_local_names_and_stores_go_to_zarr_as_they_are(tmp_path):
    memory = zarr.storage.MemoryStore()
    assert wrap_store(memory) is memory
    assert wrap_store(str(tmp_path)) == str(tmp_path)
