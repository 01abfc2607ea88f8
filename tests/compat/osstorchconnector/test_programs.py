"""The programs of the connector's README run with the import changed, as processes of their own."""

from __future__ import annotations

import io
import json
import random
import re
import shutil
from pathlib import Path

import pytest
import torch

from penstock.testing.faults import FaultServer, Settings
from tests.edges.launch import program

EXAMPLES = Path(__file__).parents[3] / "examples" / "compat"
FOLDER = "EnglistImg/Img/BadImag/Bmp/Sample001/"
NAMES = [f"img001-{number:05}.png" for number in range(1, 7)]


@pytest.fixture(scope="module")
def server():
    """Yield an emulator with six images, a manifest and a checkpoint, where the README has them."""
    from PIL import Image

    draw = random.Random(0)
    with FaultServer.start(Settings(dialect="oss", region="cn-beijing")) as server:
        for name in NAMES:
            png = io.BytesIO()
            Image.new("RGB", (draw.randrange(20, 60), draw.randrange(20, 60)), draw.randrange(1 << 24)).save(png, "PNG")
            server.put("ossconnectorbucket", FOLDER + name, png.getvalue())
        server.put("ossconnectorbucket", "manifest_file/EnglistImg/manifest_file", manifest())
        saved = io.BytesIO()
        torch.save({"weight": torch.arange(4.0)}, saved)
        server.put("ossconnectorbucket", "checkpoint/epoch.0", saved.getvalue())
        yield server


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """Return what runs an example, and gives what it printed."""
    monkeypatch.chdir(tmp_path)
    keys = {"AccessKeyId": server.store.access_key, "AccessKeySecret": server.store.secret_key}
    (tmp_path / "credentials").write_text(json.dumps(keys), "utf-8")
    (tmp_path / "manifest_file").write_bytes(manifest())
    shutil.copytree(Path(__file__).with_name("standins"), tmp_path, dirs_exist_ok=True)
    variables = {
        "OSS_ENDPOINT": server.endpoint,
        "OSS_REGION": "cn-beijing",
        "CRED_PATH": str(tmp_path / "credentials"),
    }

    def printed(name, **more):
        ended = program(shutil.copy(EXAMPLES / name, tmp_path), **variables, **more)
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    return printed


def manifest():
    return "".join(f"{FOLDER.removeprefix('EnglistImg/')}{name} label{at}\n" for at, name in enumerate(NAMES)).encode()


def test_datasets_by_prefix_objects_and_manifest(run):
    lines = run("oss_datasets.py").splitlines()
    keys = [f"/ossconnectorbucket/{FOLDER}{name}" for name in NAMES]
    named = [*keys, *keys[:3], keys[0], keys[5], *keys[:3], *keys, *keys]
    assert [line for line in lines if line.startswith("/")] == named
    assert [line for line in lines if line.startswith("label")] == [f"label{at}" for at in range(6)] * 2
    numbers = [line for line in lines if line.isdecimal()]
    assert numbers[::2] == numbers[1::2]
    assert len(numbers) == 2 * len(named)


def test_loaders_with_workers_and_shuffling(run):
    out = run("oss_dataloader.py", NUM_WORKERS="2")
    for name in NAMES:
        assert len(re.findall(name, out)) == 2


def test_a_checkpoint_is_read_and_written(run, server):
    run("oss_checkpoint.py")
    written = torch.load(io.BytesIO(server.objects("ossconnectorbucket")["checkpoint/epoch.1"]))
    assert torch.equal(written["weight"], torch.arange(4.0))
