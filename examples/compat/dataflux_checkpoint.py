"""The checkpoint of the README of Google's Connector for PyTorch; the import and the model are changed."""

import os

import torch

from penstock.compat.dataflux_pytorch import dataflux_checkpoint

PROJECT_NAME = os.environ.get("PROJECT_NAME", "project")
BUCKET_NAME = os.environ["BUCKET_NAME"]

ckpt = dataflux_checkpoint.DatafluxCheckpoint(project_name=PROJECT_NAME, bucket_name=BUCKET_NAME)
CKPT_PATH = "checkpoints/epoch0.ckpt"

model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8))

with ckpt.writer(CKPT_PATH) as writer:
    torch.save(model.state_dict(), writer)

with ckpt.reader(CKPT_PATH) as reader:
    read_state_dict = torch.load(reader)

print(model.load_state_dict(read_state_dict))
