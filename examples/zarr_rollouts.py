"""Forecast ERA5-like fields step by step: two states in, a rollout of several states as the target.

Run: python examples/zarr_rollouts.py s3://bucket/era5.zarr --steps 4
"""

import argparse

import torch

import penstock as ps

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("url", help="A group with t2m and z500, each (time, latitude, longitude).")
parser.add_argument("--steps", type=int, default=4, help="Of the longest rollout; it grows by one each epoch.")
parser.add_argument("--batch-size", type=int, default=8)
arguments = parser.parse_args()
variables = {name: f"{arguments.url.rstrip('/')}/{name}" for name in ("t2m", "z500")}

model = torch.nn.Conv2d(2 * len(variables), len(variables), kernel_size=3, padding=1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)


def stacked(fields):
    """Return variables as channels: (batch, time, variable, latitude, longitude)."""
    return torch.stack([fields[name] for name in variables], dim=2)


for steps in range(1, arguments.steps + 1):
    dataset = ps.ZarrDataset(
        variables, variables, dims="time", offsets=(-1, 0), target_offsets=range(1, steps + 1), shuffle=True
    )
    loss = torch.tensor(0.0)
    for past, future in ps.DataLoader(dataset, arguments.batch_size):
        states, wanted, loss = stacked(past), stacked(future), torch.tensor(0.0)
        before, now = states[:, 0], states[:, 1]
        for step in range(steps):
            before, now = now, now + model(torch.cat([before, now], dim=1))
            loss = loss + torch.nn.functional.mse_loss(now, wanted[:, step]) / steps
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rollouts of {steps}: loss {loss.item():.3f}")
