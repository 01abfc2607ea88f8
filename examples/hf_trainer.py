"""Train with Hugging Face's Trainer; its checkpoint folders go to the bucket and come back on any machine.

python examples/hf_trainer.py s3://bucket/photos/ --run s3://bucket/runs/4/ --output /tmp/trainer
"""

import argparse

from imagefolder import decode
from transformers import ResNetConfig, ResNetForImageClassification, Trainer, TrainerCallback, TrainingArguments

import penstock as ps


class Upload(TrainerCallback):
    """Sends each checkpoint folder to the run in the bucket."""

    def __init__(self, run: ps.CheckpointManager) -> None:
        """Send to this run."""
        self.run = run

    def on_save(self, args, state, control, **_):
        """Send the folder that the Trainer has just written."""
        if state.is_world_process_zero:
            folder = f"{args.output_dir}/checkpoint-{state.global_step}"
            self.run.save_folder(state.global_step, folder, overwrite=True)


def example(sample):
    """Return what the model's ``forward`` takes."""
    image, label = decode(sample)
    return {"pixel_values": image / 255, "labels": label}


def main() -> None:
    """Continue from the newest checkpoint in the bucket, if there is one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="the folder that holds the classes' folders")
    parser.add_argument("--run", required=True, help="the folder for checkpoints in the bucket")
    parser.add_argument("--output", required=True, help="a local folder for the Trainer")
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()

    run = ps.CheckpointManager(arguments.run, keep_last=2)
    newest = run.latest()
    folder = None if newest is None else f"{arguments.output}/restored-{newest}"
    if folder:
        run.restore_folder(folder, newest)

    catalog = ps.Catalog.scan(arguments.url, labels="folder")
    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 8], depths=[1, 1], num_labels=len(catalog.classes))
    settings = TrainingArguments(arguments.output, max_steps=arguments.steps, save_steps=2, report_to=[])
    dataset = ps.MapDataset.from_catalog(catalog, transform=example)
    trainer = Trainer(ResNetForImageClassification(config), settings, train_dataset=dataset, callbacks=[Upload(run)])
    trainer.train(resume_from_checkpoint=folder)
    print(f"trained up to step {trainer.state.global_step}")


if __name__ == "__main__":
    main()
