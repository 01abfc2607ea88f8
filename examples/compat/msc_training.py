"""A training that reads CMIP6 by Multi-Storage Client's names; the import is changed, and nothing else."""

import torch

import penstock.compat.multistorageclient as msc

TAS = "msc://cmip6-pds/CMIP6/ScenarioMIP/NOAA-GFDL/GFDL-ESM4/ssp119/r1i1p1f1/day/tas/gr1/v20180701"
RUN = "msc://cwb-diffusions/runs/1"


class Days(torch.utils.data.Dataset):
    def __init__(self, url):
        self.tas = msc.xarray.open_zarr(url, chunks=None)["tas"]  # without dask, whose threads do not survive a fork

    def __len__(self):
        return self.tas.sizes["time"]

    def __getitem__(self, day):
        return torch.from_numpy(self.tas[day].values.copy())


model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
days = Days(TAS)
print("warmest", float(days[0].max()))
for batch in torch.utils.data.DataLoader(days, batch_size=8, shuffle=True, num_workers=2):
    loss = model(batch[:, :, :4]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

if msc.is_empty(RUN):
    print("first run")
msc.torch.save(model.state_dict(), f"{RUN}/model.pt")
with msc.open(f"{RUN}/log.txt", "w") as log:
    log.write(f"loss {loss.item():.3f}\n")
print(sorted(each.key for each in msc.list(RUN)))
model.load_state_dict(msc.torch.load(msc.Path(RUN) / "model.pt"))
