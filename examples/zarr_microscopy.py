"""Denoise patches of an OME-Zarr image: patches with a border, from one resolution of the pyramid.

Run: python examples/zarr_microscopy.py s3://bucket/image.ome.zarr --level 0
"""

import argparse

import torch
import zarr

import penstock as ps
from penstock.interop.zarr import Store

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("url", help="An image of OME-Zarr 0.4 or 0.5: (c, z, y, x), or fewer dimensions.")
parser.add_argument("--level", type=int, default=0, help="Of the pyramid; 0 has the most pixels.")
parser.add_argument("--patch", type=int, default=32)
parser.add_argument("--batch-size", type=int, default=16)
arguments = parser.parse_args()
url = arguments.url.rstrip("/")

attributes = zarr.open_group(Store(url, read_only=True), mode="r").attrs
described = attributes.get("ome", attributes)["multiscales"][0]
level = described["datasets"][arguments.level]["path"]
names = [axis["name"] for axis in described["axes"]]
print(f"level {level}: {' '.join(names)}")

# OME-Zarr 0.4 names the dimensions in its own attributes only: those of the array are dim_0, dim_1, …
array = zarr.open_array(Store(f"{url}/{level}", read_only=True), mode="r")
stored = array.metadata.to_dict().get("dimension_names") or [f"dim_{number}" for number in range(len(names))]
dims = dict(zip(names, stored, strict=True))
around = [dims[name] for name in names if name not in ("y", "x")]
size = {dims["y"]: arguments.patch, dims["x"]: arguments.patch}
dataset = ps.ZarrDataset(f"{url}/{level}", f"{url}/{level}", dims=around or None, patch=size, halo=2, shuffle=True)

model = torch.nn.Conv2d(1, 1, kernel_size=5)  # the border of two pixels is what the kernel takes
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss, patches = torch.tensor(0.0), 0
for image, inner in ps.DataLoader(dataset, arguments.batch_size):
    noisy = image.float() / 255 + 0.1 * torch.randn(image.shape)
    loss = torch.nn.functional.mse_loss(model(noisy[:, None]), inner.float()[:, None] / 255)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    patches += len(image)
print(f"{patches} patches of {arguments.patch} x {arguments.patch}, loss {loss.item():.4f}")
