"""Train on arrays whose carrier is not Zarr: NetCDF, references of kerchunk (of NetCDF or GRIB), Icechunk, AnnData.

Run: python examples/zarr_carriers.py "s3://bucket/netcdf/*.nc" t2m
"""

import argparse
from urllib.parse import urlsplit

import torch
import zarr

import penstock as ps

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("url", help="…/*.nc, …/references.json, …/references.parq, …/cells.zarr, …/name.icechunk")
parser.add_argument("array", help="t2m; X, layers/counts or obsm/X_pca of AnnData.")
parser.add_argument("--targets", help="Another array: obs/cell_type/codes of AnnData.")
parser.add_argument("--batch-size", type=int, default=4)
arguments = parser.parse_args()


def netcdf(pattern):
    """Return the chunks of all matching files as one virtual dataset: VirtualiZarr reads their headers."""
    import xarray as xr
    from obspec_utils.registry import ObjectStoreRegistry
    from obstore.store import from_url
    from virtualizarr import open_virtual_dataset
    from virtualizarr.parsers import HDFParser

    urls = sorted(each.url for each in ps.glob(pattern))
    root = "{0.scheme}://{0.netloc}".format(urlsplit(urls[0]))
    registry = ObjectStoreRegistry({root: from_url(f"{root}/")})
    parts = [open_virtual_dataset(each, registry=registry, parser=HDFParser()) for each in urls]
    return xr.concat(parts, "time", data_vars="minimal", coords="minimal", compat="override", join="override")


def opened(name):
    """Return an array in a form that ps.ZarrDataset takes."""
    if arguments.url.endswith(".nc"):
        return netcdf(arguments.url)[name]
    if arguments.url.endswith(".icechunk"):
        import icechunk

        repository = icechunk.Repository.open(icechunk.local_filesystem_storage(arguments.url))
        return zarr.open_array(repository.readonly_session("main").store, path=name, mode="r")
    return f"{arguments.url}/{name}"


targets = opened(arguments.targets) if arguments.targets else None
dataset = ps.ZarrDataset(opened(arguments.array), targets, shuffle=True)
total, loader = torch.zeros(()), ps.DataLoader(dataset, arguments.batch_size)
for batch in loader:
    samples = batch[0] if arguments.targets else batch
    total += samples.double().mean() * len(samples)
print(f"{len(dataset)} samples of {tuple(samples.shape[1:])}, mean {total / len(dataset):.3f}")
