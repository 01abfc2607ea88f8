"""Train a classifier of clips of MP4 files; the folder of a file is its label.

python examples/video.py s3://bucket/clips/ --run s3://bucket/runs/9/
"""

import argparse

import torch

import penstock as ps


def main() -> None:
    """Classify clips; save the model and the place in the data; a second run goes on there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder of folders of MP4 files")
    parser.add_argument("--run", required=True, help="the folder for checkpoints")
    parser.add_argument("--frames", type=int, default=8, help="frames of a clip")
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--save-every", type=int, default=100, help="steps from one checkpoint to the next")
    arguments = parser.parse_args()

    # Half of each clip is in the next one, too. The loader's threads decode.
    clips = ps.VideoDataset.from_shards(
        arguments.url,
        frames=arguments.frames,
        stride=max(arguments.frames // 2, 1),
        labels="folder",
        transform=lambda clip: (clip.resized(32, 32) / 255, clip.label),
    )
    loader = ps.DataLoader(clips, arguments.batch_size, shuffle=ps.order.Lanes(), seed=1)
    print(f"{len(clips)} clips of {', '.join(clips.classes)}, {clips.left_out} frames left out")

    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(len(clips.classes)))
    model(torch.zeros(1, arguments.frames, 3, 32, 32))
    optimizer = torch.optim.Adam(model.parameters())
    run, step = ps.CheckpointManager(arguments.run, keep_last=2), 0
    if run.latest() is not None:
        state = run.restore(loader=loader)
        model.load_state_dict(state["model"])
        step = state["step"]

    while loader.state_dict()["epoch"] < arguments.epochs:
        for frames, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(frames), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % arguments.save_every == 0:
                run.save(step, {"model": model.state_dict(), "step": step}, loader=loader)
        print(f"step {step}: loss {loss:.2f}")


if __name__ == "__main__":
    main()
