"""Train with Hugging Face's Trainer over ps.DataLoader; checkpoints go to the bucket and resume on any machine.

python examples/hf_trainer.py s3://bucket/photos/ --run s3://bucket/runs/4/ --output /tmp/trainer
"""

import argparse

import torch
from imagefolder import decode
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainerCallback, TrainingArguments

import penstock as ps


class Upload(TrainerCallback):
    """Sends each checkpoint folder, with the position in the data, to the run in the bucket."""

    def on_save(self, args, state, control, **_):
        """Send the folder that the Trainer has just written."""
        if state.is_world_process_zero:
            folder = f"{args.output_dir}/checkpoint-{state.global_step}"
            torch.save(self.loader.state_dict(), f"{folder}/loader.pt")
            self.run.save_folder(state.global_step, folder, overwrite=True)


def example(sample):
    """Return what the model's ``forward`` takes."""
    image, label = decode(sample)
    return {"pixel_values": image / 255, "labels": label}


def main() -> None:
    """Continue with the next batch after the newest checkpoint in the bucket, if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("url", "--run", "--output"):
        parser.add_argument(name, **({"required": True} if name.startswith("-") else {}))
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    dataset = ps.MapDataset.from_prefix(arguments.url, labels="folder", transform=example)
    upload = Upload()
    upload.loader = ps.DataLoader(dataset, 8, shuffle=True)
    upload.run = ps.CheckpointManager(arguments.run, keep_last=2)
    folder, newest = None, upload.run.latest()
    if newest is not None:
        folder = f"{arguments.output}/restored-{newest}"
        upload.run.restore_folder(folder, newest)
        upload.loader.load_state_dict(torch.load(f"{folder}/loader.pt"))
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=len(dataset.classes))
    steps = {"max_steps": arguments.steps, "save_steps": 2, "ignore_data_skip": True}  # the loader is where it was
    settings = TrainingArguments(arguments.output, per_device_train_batch_size=8, report_to=[], **steps)
    trainer = Trainer(ResNetForImageClassification(config), settings, callbacks=[upload])
    trainer.get_train_dataloader = lambda: upload.loader
    trainer.train(resume_from_checkpoint=folder)
    print(f"trained up to step {trainer.state.global_step}")


if __name__ == "__main__":
    main()
