"""The datasets of OSS Connector for AI/ML's README; the import is changed, and nothing else."""

import io
import os
from collections.abc import Iterable
from pathlib import Path

from penstock.compat.osstorchconnector import OssIterableDataset, OssMapDataset

ENDPOINT = os.environ.get("OSS_ENDPOINT", "http://oss-cn-beijing-internal.aliyuncs.com")
CONFIG_PATH = "/etc/oss-connector/config.json"
CRED_PATH = os.environ.get("CRED_PATH", str(Path("~/.alibabacloud/credentials").expanduser()))
OSS_URI = "oss://ossconnectorbucket/EnglistImg/Img/BadImag/Bmp/Sample001/"

# IterableDataset: from_prefix
iterable_dataset = OssIterableDataset.from_prefix(
    OSS_URI, endpoint=ENDPOINT, cred_path=CRED_PATH, config_path=CONFIG_PATH
)
for item in iterable_dataset:
    print(item.key)
    print(item.size)
    content = item.read()
    print(len(content))
    item.close()

# from_objects
uris = [
    "oss://ossconnectorbucket/EnglistImg/Img/BadImag/Bmp/Sample001/img001-00001.png",
    "oss://ossconnectorbucket/EnglistImg/Img/BadImag/Bmp/Sample001/img001-00002.png",
    "oss://ossconnectorbucket/EnglistImg/Img/BadImag/Bmp/Sample001/img001-00003.png",
]
iterable_dataset = OssIterableDataset.from_objects(
    uris, endpoint=ENDPOINT, cred_path=CRED_PATH, config_path=CONFIG_PATH
)
for item in iterable_dataset:
    print(item.key)
    print(item.size)
    content = item.read()
    print(len(content))
    item.close()

# MapDataset: random access
map_dataset = OssMapDataset.from_prefix(OSS_URI, endpoint=ENDPOINT, cred_path=CRED_PATH, config_path=CONFIG_PATH)
item = map_dataset[0]
print(item.key)
content = item.read()
print(item.size)
print(len(content))
item.close()

with map_dataset[5] as item:
    print(item.key)
    content = item.read()
    print(item.size)
    print(len(content))

map_dataset = OssMapDataset.from_objects(uris, endpoint=ENDPOINT, cred_path=CRED_PATH, config_path=CONFIG_PATH)
for item in map_dataset:
    print(item.key)
    print(item.size)
    content = item.read()
    print(len(content))
    item.close()


# Manifest file
def manifest_parser(reader: io.IOBase) -> Iterable[tuple[str, str]]:
    lines = reader.read().decode("utf-8").strip().split("\n")
    for line in lines:
        items = line.strip().split(" ")
        if len(items) >= 2:
            yield (items[0], items[1])
        elif len(items) == 1:
            yield (items[0], "")
        else:
            raise ValueError("format error")


for manifest_file in ("manifest_file", "oss://ossconnectorbucket/manifest_file/EnglistImg/manifest_file"):
    iterable_dataset = OssIterableDataset.from_manifest_file(
        manifest_file,
        manifest_parser,
        "oss://ossconnectorbucket/EnglistImg/",
        endpoint=ENDPOINT,
        cred_path=CRED_PATH,
        config_path=CONFIG_PATH,
    )
    for item in iterable_dataset:
        print(item.key)
        print(item.size)
        print(item.label)
        content = item.read()
        print(len(content))
        item.close()
