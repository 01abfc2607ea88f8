"""Train on Ray with two to four workers, as many as there are; the samples of a step are the same with any number.

python examples/ray/train.py s3://bucket/photos/ --run s3://bucket/runs/4/
"""

import argparse

import ray.train.torch
import torch
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

import penstock as ps
import penstock.ray
from penstock.interop import arrow

GLOBAL_BATCH = 24  # samples per step, over all workers: 2, 3 and 4 divide it


def train(settings):
    """Train on one worker; after a failure or a resize, Ray calls this again, with the workers that there are."""
    dataset = ps.MapDataset.from_prefix(settings["url"], labels="folder", transform=pixels)
    each = GLOBAL_BATCH // ray.train.get_context().get_world_size()
    loader = ps.DataLoader(dataset, each, shuffle=True, device=ray.train.torch.get_device())
    model = torch.nn.Linear(64, settings["labels"])
    run = ps.CheckpointManager(f"{settings['run']}steps/", keep_last=2)
    step = run.latest() or 0
    if step:
        model.load_state_dict(run.restore(loader=loader)["model"])
    trained = ray.train.torch.prepare_model(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(loader.state_dict()["epoch"], settings["epochs"]):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(trained(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % settings["save_every"] == 0:
                penstock.ray.report({"loss": loss.item()}, run, step, {"model": model.state_dict()}, loader=loader)


def pixels(sample):
    """Return the first bytes of an image as a vector, and its label."""
    return torch.tensor(list(sample.data[:64]), dtype=torch.float32) / 255, sample.label


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder that holds the classes' folders")
    parser.add_argument("--run", required=True, help="the folder for the checkpoints and Ray's own files")
    parser.add_argument("--labels", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--save-every", type=int, default=5, metavar="STEPS")
    given = parser.parse_args()
    files, path = arrow.from_url(f"{given.run}ray/")
    config = RunConfig("training", path, storage_filesystem=files, failure_config=FailureConfig(3))
    scaling = ScalingConfig(num_workers=(2, 4), use_gpu=torch.cuda.is_available())
    trainer = TorchTrainer(train, train_loop_config=vars(given), scaling_config=scaling, run_config=config)
    print(*penstock.ray.reported(trainer.fit().checkpoint))
