"""Learn tomorrow's temperature from today's on CMIP6's daily data; values are decoded by CF as xarray does.

Run: python examples/zarr_cmip6.py s3://cmip6-pds/CMIP6/…/day/tas/gr1/v20180701/ --run s3://bucket/run/
"""

import argparse

import torch

import penstock as ps

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("url", help="A group with tas (time, lat, lon), of format 2 or 3.")
parser.add_argument("--run", required=True, help="Where checkpoints lie; a run that is there is resumed.")
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--epochs", type=int, default=1)
arguments = parser.parse_args()
tas = f"{arguments.url.rstrip('/')}/tas"

dataset = ps.ZarrDataset(tas, tas, dims="time", offsets=0, target_offsets=1, shuffle=True)
loader = ps.DataLoader(dataset, arguments.batch_size)
model = torch.nn.Conv2d(1, 1, kernel_size=3, padding=1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
run = ps.CheckpointManager(arguments.run)
epoch = 0
if run.latest() is not None:
    state = run.restore(loader=loader)
    model.load_state_dict(state["model"])
    epoch = state["epoch"]

while epoch < arguments.epochs:
    loss = torch.tensor(0.0)
    for today, tomorrow in loader:
        fields, wanted = ((each.float().nan_to_num(280.0)[:, None] - 280) / 20 for each in (today, tomorrow))
        loss = torch.nn.functional.mse_loss(model(fields), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    epoch += 1
    run.save(epoch, {"model": model.state_dict(), "epoch": epoch}, loader=loader)
    print(f"epoch {epoch}: loss {loss.item():.3f}")
