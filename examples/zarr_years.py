"""Train on a store for each year: statistics of the training years normalise both parts, and the rest validates.

Run: python examples/zarr_years.py "s3://bucket/years/*.zarr" 2020 --statistics s3://bucket/years.json
"""

import argparse

import torch

import penstock as ps

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("pattern", help="Groups with t2m (time, latitude, longitude), one for each year.")
parser.add_argument("validation", help="The first date of the validation.")
parser.add_argument("--statistics", required=True, help="A file for the statistics; it is continued if it exists.")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch-size", type=int, default=8)
arguments = parser.parse_args()

# Samples reach from year to year, and none reaches over the border of the parts.
fields = {"t2m": f"{arguments.pattern.rstrip('/')}/t2m"}
years = ps.ZarrDataset(fields, fields, along="time", dims="time", offsets=(-1, 0), target_offsets=1, shuffle=True)
train, validation = years.split_at(arguments.validation)
statistics = train.statistics(save=arguments.statistics)
print(statistics)
train, validation = train.normalized(statistics), validation.normalized(statistics)

model = torch.nn.Conv2d(2, 1, kernel_size=3, padding=1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)


def loss_of(batch):
    """Return the error of the next step's field."""
    inputs, wanted = batch
    return torch.nn.functional.mse_loss(model(inputs["t2m"])[:, 0], wanted["t2m"])


train_loader = ps.DataLoader(train, arguments.batch_size)
validation_loader = ps.DataLoader(validation, arguments.batch_size)
for epoch in range(arguments.epochs):
    for batch in train_loader:
        optimizer.zero_grad()
        loss_of(batch).backward()
        optimizer.step()
    with torch.no_grad():
        losses = [loss_of(batch) for batch in validation_loader]
    print(f"epoch {epoch}: {len(train)} samples, validation loss {torch.stack(losses).mean():.3f}")
