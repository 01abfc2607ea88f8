"""zarr-torch-dataset's datasets in a loop of plain PyTorch, which its README leaves open: DDP, each rank on a part.

Run: torchrun examples/compat/zarr_pytorch.py s3://bucket/data, or by one of examples/slurm
"""

import sys

import torch
import torch.distributed as dist
import zarr
from torch.nn.parallel import DistributedDataParallel

from penstock.compat.zarrdataset import ZarrDataLoader, ZarrIterableDataset
from penstock.interop.zarr import Store

url = sys.argv[1]
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")

train_ds = ZarrIterableDataset(
    samples=zarr.open(Store(f"{url}/train_samples_zarr"), mode="r"),
    targets=zarr.open(Store(f"{url}/train_targets_zarr"), mode="r"),
    shuffle_chunks=True,
    chunks_shuffle_seed=42,
    shuffle_buffer=True,
    buffer_shuffle_seed=None,
)
train_da = ZarrDataLoader(dataset=train_ds, num_workers=2, batch_size=32, prefetch_factor=2, drop_last=False)

device = torch.device("cuda", dist.get_node_local_rank()) if torch.cuda.is_available() else torch.device("cpu")
model = DistributedDataParallel(torch.nn.Linear(8, 1).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

for epoch in range(2):
    steps, seen, loss = 0, 0, torch.tensor(0.0)
    for samples, targets in train_da:
        loss = torch.nn.functional.mse_loss(model(samples.to(device))[:, 0], targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        steps, seen = steps + 1, seen + len(samples)
    rank = f"rank {dist.get_rank()} of {dist.get_world_size()}"
    print(f"{rank}: epoch {epoch}, {steps} steps, {seen} samples, loss {loss.item():.3f}", flush=True)
dist.destroy_process_group()
