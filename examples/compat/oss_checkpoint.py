"""Checkpoints of OSS Connector for AI/ML's README; the import is changed, and nothing else."""

import os
from pathlib import Path

import torch

from penstock.compat.osstorchconnector import OssCheckpoint

ENDPOINT = os.environ.get("OSS_ENDPOINT", "http://oss-cn-beijing-internal.aliyuncs.com")
CONFIG_PATH = "/etc/oss-connector/config.json"
CRED_PATH = os.environ.get("CRED_PATH", str(Path("~/.alibabacloud/credentials").expanduser()))

checkpoint = OssCheckpoint(endpoint=ENDPOINT, cred_path=CRED_PATH, config_path=CONFIG_PATH)

# read checkpoint
CHECKPOINT_READ_URI = "oss://ossconnectorbucket/checkpoint/epoch.0"
with checkpoint.reader(CHECKPOINT_READ_URI) as reader:
    state_dict = torch.load(reader)

# write checkpoint
CHECKPOINT_WRITE_URI = "oss://ossconnectorbucket/checkpoint/epoch.1"
with checkpoint.writer(CHECKPOINT_WRITE_URI) as writer:
    torch.save(state_dict, writer)
