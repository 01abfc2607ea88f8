"""Denoise patches of an OME-Zarr image: patches with a border, from one resolution of the pyramid.

Run: python examples/zarr_microscopy.py s3://bucket/image.ome.zarr/0
"""

import argparse

import torch

import penstock as ps

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("url", help="An image of OME-Zarr, (t, c, z, y, x) or fewer dimensions, or one of its levels.")
parser.add_argument("--dims", nargs="*", default=["c"], help="Dimensions besides y and x, one sample for each.")
parser.add_argument("--patch", type=int, default=32)
parser.add_argument("--batch-size", type=int, default=16)
arguments = parser.parse_args()

# The image itself has the most pixels; image/1, image/2, … are its coarser levels.
image = arguments.url
size = {"y": arguments.patch, "x": arguments.patch}
dataset = ps.ZarrDataset(image, image, dims=arguments.dims or None, patch=size, halo=2, shuffle=True)

model = torch.nn.Conv2d(1, 1, kernel_size=5)  # the border of two pixels is what the kernel takes
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss, patches = torch.tensor(0.0), 0
for pixels, inner in ps.DataLoader(dataset, arguments.batch_size):
    noisy = pixels.float() / 255 + 0.1 * torch.randn(pixels.shape)
    loss = torch.nn.functional.mse_loss(model(noisy[:, None]), inner.float()[:, None] / 255)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    patches += len(pixels)
print(f"{patches} patches of {arguments.patch} x {arguments.patch}, loss {loss.item():.4f}")
