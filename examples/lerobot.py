"""Train a policy on a LeRobot v3 dataset where it lies: from the frames of all cameras to the next actions.

python examples/lerobot.py s3://bucket/robot/ --run s3://bucket/runs/14/
"""

import argparse
import json

import torch

import penstock as ps


def main() -> None:
    """Predict the actions of the next rows; save the model and the place in the data; a second run goes on there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder of the dataset")
    parser.add_argument("--run", required=True, help="the folder for checkpoints")
    parser.add_argument("--horizon", type=int, default=16, help="actions to predict")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100, help="steps from one checkpoint to the next")
    arguments = parser.parse_args()

    with ps.open(f"{arguments.url.rstrip('/')}/meta/info.json") as file:
        fps = json.load(file)["fps"]
    deltas = {"action": [step / fps for step in range(arguments.horizon)]}
    dataset = ps.LeRobotDataset(arguments.url, delta_timestamps=deltas)
    cameras = [name for name, feature in dataset.info["features"].items() if feature["dtype"] == "video"]
    print(f"{len(dataset)} samples of {len(dataset.episodes)} episodes, {len(cameras)} cameras at {fps} fps")
    loader = ps.DataLoader(dataset, arguments.batch_size, shuffle=True, seed=1)

    layers = torch.nn.Conv2d(3 * len(cameras), 8, 8, stride=8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4)
    actions = torch.nn.Linear(8 * 16, dataset[0]["action"].numel())
    model = torch.nn.Sequential(*layers, torch.nn.Flatten(), actions)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    run, step = ps.CheckpointManager(arguments.run, keep_last=2), 0
    if run.latest() is not None:
        state = run.restore(loader=loader)
        model.load_state_dict(state["model"])
        step = state["step"]

    while loader.state_dict()["epoch"] < arguments.epochs:
        for batch in loader:
            found = model(torch.cat([batch[camera] for camera in cameras], dim=1)).view_as(batch["action"])
            missed = torch.nn.functional.mse_loss(found, batch["action"], reduction="none").mean(-1)
            loss = missed[~batch["action_is_pad"]].mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % arguments.save_every == 0:
                run.save(step, {"model": model.state_dict(), "step": step}, loader=loader)
        print(f"step {step}: loss {loss:.2f}")


if __name__ == "__main__":
    main()
