"""Transforms and loaders of OSS Connector for AI/ML's README; the import is changed, and nothing else."""

import io
import os
from pathlib import Path

import torch
import torchvision.transforms as transforms
from PIL import Image

from penstock.compat.osstorchconnector import OssIterableDataset, OssMapDataset

ENDPOINT = os.environ.get("OSS_ENDPOINT", "http://oss-cn-beijing-internal.aliyuncs.com")
CONFIG_PATH = "/etc/oss-connector/config.json"
CRED_PATH = os.environ.get("CRED_PATH", str(Path("~/.alibabacloud/credentials").expanduser()))
OSS_URI = "oss://ossconnectorbucket/EnglistImg/Img/BadImag/Bmp/Sample001/"
NUM_WORKERS = int(os.environ.get("NUM_WORKERS", "32"))

trans = transforms.Compose(
    [
        transforms.Resize(256),
        transforms.CenterCrop(224),
        transforms.ToTensor(),
        transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
    ]
)


def transform(data):
    img = Image.open(io.BytesIO(data.read())).convert("RGB")
    val = trans(img)
    return val, data.key, data.label


# OssIterableDataset
iterable_dataset = OssIterableDataset.from_prefix(
    OSS_URI, endpoint=ENDPOINT, transform=transform, cred_path=CRED_PATH, config_path=CONFIG_PATH
)
loader = torch.utils.data.DataLoader(iterable_dataset, batch_size=256, num_workers=NUM_WORKERS, prefetch_factor=2)
for i, (datas, keys, labels) in enumerate(loader):
    print(datas)
    print(keys)

# OssMapDataset with shuffle
map_dataset = OssMapDataset.from_prefix(
    OSS_URI, endpoint=ENDPOINT, transform=transform, cred_path=CRED_PATH, config_path=CONFIG_PATH
)
loader = torch.utils.data.DataLoader(
    map_dataset, batch_size=256, num_workers=NUM_WORKERS, prefetch_factor=2, shuffle=True
)
for i, (datas, keys, labels) in enumerate(loader):
    print(datas)
    print(keys)
