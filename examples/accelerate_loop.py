"""Train in a loop with Accelerate; model, optimizer and the position in the data are one checkpoint.

accelerate launch examples/accelerate_loop.py s3://bucket/photos/ --run s3://bucket/runs/5/
"""

import argparse

import torch
from accelerate import Accelerator
from imagefolder import decode

import penstock as ps


def main() -> None:
    """Train up to a number of epochs; a second run continues after the last saved step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder that holds the classes' folders")
    parser.add_argument("--run", required=True, help="the folder for checkpoints")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--save-every", type=int, default=100, metavar="STEPS")
    arguments = parser.parse_args()

    accelerator = Accelerator()
    catalog = ps.Catalog.scan(arguments.url, labels="folder")
    dataset = ps.MapDataset.from_catalog(catalog, transform=decode)
    # Do not pass this loader to `prepare`: it shards across ranks and resumes by itself.
    loader = ps.DataLoader(dataset, arguments.batch_size, shuffle=True, device=accelerator.device)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * 64 * 3, len(catalog.classes)))
    model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters()))
    parts = {"model": accelerator.unwrap_model(model), "optimizer": optimizer}
    run = ps.CheckpointManager(arguments.run, keep_last=2)
    step = run.latest() or 0
    if step:
        state = run.restore(loader=loader, map_location=accelerator.device)
        for name, part in parts.items():
            part.load_state_dict(state[name])

    for epoch in range(loader.state_dict()["epoch"], arguments.epochs):
        for images, labels in loader:
            accelerator.backward(torch.nn.functional.cross_entropy(model(images / 255), labels))
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step % arguments.save_every == 0 and accelerator.is_main_process:
                run.save(step, {name: part.state_dict() for name, part in parts.items()}, loader=loader)
        accelerator.print(f"epoch {epoch} ended after step {step}")


if __name__ == "__main__":
    main()
