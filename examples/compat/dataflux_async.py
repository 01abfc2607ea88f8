"""The asynchronous save of the README of Google's Connector for PyTorch; the import is changed, and nccl is gloo."""

import os

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import async_save, load

from penstock.compat.dataflux_pytorch.lightning.gcs_filesystem import GCSDistributedReader, GCSDistributedWriter


def main():
    project = os.environ.get("PROJECT_NAME", "project")
    path = f"gs://{os.environ['BUCKET_NAME']}/distributed/"
    num_epochs = 3
    storage_client = None  # or a google.cloud.storage.Client

    # Initialize the process group.
    dist.init_process_group("gloo")
    default_ranks = list(range(dist.get_world_size()))
    checkpoint_group = dist.new_group(default_ranks, backend="gloo")

    # Create GCS Distributed Writer for checkpoint saves.
    writer = GCSDistributedWriter(path, project, storage_client)
    state_dict = {"weight": torch.zeros(1000), "epoch": -1}

    # Do work...
    checkpoint_future = None
    for epoch in range(num_epochs):
        state_dict["weight"] += 1
        state_dict["epoch"] = epoch

        # Avoid queuing more then one checkpoint request at a time.
        if checkpoint_future is not None:
            checkpoint_future.result()

        checkpoint_future = async_save(
            state_dict, checkpoint_id=path, storage_writer=writer, process_group=checkpoint_group
        )
    checkpoint_future.result()

    found = {"weight": torch.zeros(1000), "epoch": -1}
    load(found, storage_reader=GCSDistributedReader(path, project, storage_client))
    print(f"rank {dist.get_rank()}: epoch {found['epoch']}, weight {found['weight'].mean():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
