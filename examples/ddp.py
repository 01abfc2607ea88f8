"""Train with DistributedDataParallel in bf16; a killed job continues in mid-epoch, on any number of ranks.

torchrun --nproc-per-node 8 -- examples/ddp.py s3://bucket/photos/ --run s3://bucket/runs/2/
"""

import argparse

import torch
import torch.distributed as dist
from imagefolder import decode

import penstock as ps


def main() -> None:
    """Train; rank 0 saves model, optimizer and the position in the data."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder that holds the classes' folders")
    parser.add_argument("--run", required=True, help="the folder for the catalog and the checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--global-batch", type=int, default=256, help="samples per step, over all ranks")
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    rank = dist.get_rank()
    catalog_url = f"{arguments.run}train.catalog"  # one listing for all ranks and all restarts
    if rank == 0 and not list(ps.list(catalog_url)):
        ps.Catalog.scan(arguments.url, labels="folder").save(catalog_url)
    dist.barrier()
    catalog = ps.Catalog.open(catalog_url)
    dataset = ps.MapDataset.from_catalog(catalog, transform=decode)
    loader = ps.DataLoader(dataset, arguments.global_batch // dist.get_world_size(), shuffle=True, device=device)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * 64 * 3, len(catalog.classes))).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    run = ps.CheckpointManager(f"{arguments.run}steps/", keep_last=2)
    step = run.latest() or 0
    if step:
        state = run.restore(loader=loader, map_location=device)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    trained = torch.nn.parallel.DistributedDataParallel(model)
    for epoch in range(loader.state_dict()["epoch"], arguments.epochs):
        for images, labels in loader:
            with torch.autocast(device.type, torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(trained(images / 255), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % arguments.save_every == 0 and rank == 0:
                run.save(step, {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, loader=loader)
        print(f"rank {rank}: epoch {epoch} ended after step {step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
