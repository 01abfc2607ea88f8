# ruff: noqa: B018, I001  its mistakes are what it is for
"""A user's program: mypy finds exactly the mistakes that are marked."""

from __future__ import annotations

import penstock as ps
import torch

azure = ps.AzureOptions(account="mine")
ps.AzureOptions(acount="mine")  # error: call-arg
store: ps.StoreOptions = azure
ps.MapDatset  # error: attr-defined
ps.no_such_name  # error: attr-defined


def decode(sample: ps.Sample) -> tuple[torch.Tensor, int]:
    """Return pixels and a label, an index."""
    names = ["cat", "dog"]
    assert names[sample.label]
    sample.lable  # error: attr-defined
    return torch.frombuffer(bytearray(sample.data), dtype=torch.uint8), sample.label


dataset = ps.MapDataset.from_prefix("s3://bucket/train/", transform=decode, labels="folder", store=azure)
part: ps.MapDataset = dataset[:10]
ps.MapDataset.from_prefix("s3://bucket/train/", transfrom=decode)  # error: call-arg
ps.MapDataset.from_prefix(3)  # error: arg-type
loader = ps.DataLoader(dataset, batch_size=64, shuffle=True)
ps.DataLoader(dataset, batchsize=64, shuffle="yes")  # error: arg-type
for images, labels in loader:
    assert images, labels

run = ps.CheckpointManager("s3://bucket/run/", keep_last=2)
run.save("1", {})  # error: arg-type
step: int | None = run.latest()
with ps.open("s3://bucket/x", "rb") as file:
    text: str = file.read()  # error: assignment
sizes: list[int] = [meta.size for meta in ps.list("s3://bucket/train/")]
credentials: ps.credentials.Credentials
error: type[Exception] = ps.PenstockError
zarr = ps.ZarrDataset("s3://bucket/era5.zarr")
