"""Train a downscaling model on data that lies as CorrDiff's: coarse and fine fields, centre and scale, valid times.

Run: python examples/zarr_corrdiff.py /code/2023-01-24-cwb-4years.zarr
From a bucket only the path changes: python examples/zarr_corrdiff.py s3://cwb/2023-01-24-cwb-4years.zarr
"""

import argparse

import torch
import zarr

import penstock as ps
from penstock.interop.zarr import Store

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("input_path", help="A group with era5, cwb (time, channel, y, x), …_center, …_scale, …_valid.")
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=1)
arguments = parser.parse_args()
path = arguments.input_path.rstrip("/")

group = zarr.open_group(Store(path, read_only=True), mode="r")  # small arrays are read once
valid = (group["cwb_valid"][:] & group["era5_valid"][:]) != 0


def normalizer(name):
    """Return a function that centres and scales the channels of a batch."""
    center, scale = (torch.from_numpy(group[f"{name}_{what}"][:])[:, None, None] for what in ("center", "scale"))
    return lambda fields: (fields - center) / scale


dataset = ps.ZarrDataset(f"{path}/era5", f"{path}/cwb", dims="time", valid=valid, shuffle=True)
loader = ps.DataLoader(dataset, arguments.batch_size)
coarse, fine = normalizer("era5"), normalizer("cwb")
model = torch.nn.Conv2d(group["era5"].shape[1], group["cwb"].shape[1], kernel_size=5, padding=2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

for epoch in range(arguments.epochs):
    losses = []
    for era5, cwb in loader:
        loss = torch.nn.functional.mse_loss(model(coarse(era5)), fine(cwb))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    samples = int(valid.sum())
    print(f"epoch {epoch}: {samples} of {len(valid)} times, loss {losses[0]:.3f} -> {losses[-1]:.3f}")
