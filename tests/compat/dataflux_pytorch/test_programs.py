"""The programs of the README of Google's connector run with the import changed, as processes of their own."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest

from penstock.testing.faults import FaultServer, Settings
from tests.edges.launch import program, ranks

EXAMPLES = Path(__file__).parents[3] / "examples" / "compat"
SIZES = [(5, 4), (5, 4), (5, 4), (5, 4)]


@pytest.fixture(scope="module")
def server():
    from PIL import Image

    draw = random.Random(0)
    with FaultServer.start(Settings(dialect="gcs")) as server:
        for number, size in enumerate(SIZES):
            png = io.BytesIO()
            Image.new("RGB", size, draw.randrange(1 << 24)).save(png, "PNG")
            server.put("bucket", f"images/{number}.png", png.getvalue())
        yield server


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """Return what runs an example, and gives what it printed."""
    monkeypatch.chdir(tmp_path)

    def printed(name, start=program):
        ended = start(EXAMPLES / name, **server.environment, BUCKET_NAME="bucket")
        assert ended.returncode == 0, ended.stdout
        return ended.stdout

    return printed


def test_dataflux_datasets_yields_bytes_and_arrays(run, server):
    out = run("dataflux_datasets.py")
    images = [len(data) for name, data in server.objects("bucket").items() if name.startswith("images/")]
    assert f"images/0.png {images[0]}\n" in out
    for kind in ("map", "iterable"):
        assert re.findall(rf"^{kind} bytes (\d+)$", out, re.MULTILINE) == [str(each) for each in images]
    assert re.findall(r"^map \((.*)\)$", out, re.MULTILINE) == ["4, 5, 3"] * 4
    assert out.count("batch (2, 4, 5, 3)\n") == 2
    assert server.uploads("bucket") == []


def test_dataflux_settings_are_taken(run, server):
    images = [len(data) for name, data in server.objects("bucket").items() if name.startswith("images/")]
    assert run("dataflux_settings.py").endswith(f"4 objects\n{sum(images)} bytes\n")


def test_dataflux_checkpoint_is_loaded_as_it_was_saved(run, server):
    assert "<All keys matched successfully>" in run("dataflux_checkpoint.py")
    assert "checkpoints/epoch0.ckpt" in server.objects("bucket")


def test_dataflux_lightning_saves_to_the_bucket(run, server):
    assert "saved at step 10\n" in run("dataflux_lightning.py")
    assert "checkpoints/ckpt.ckpt" in server.objects("bucket")


def test_dataflux_async_saves_on_all_ranks(run, server):
    out = run("dataflux_async.py", start=lambda *words, **variables: ranks(2, *words, **variables))
    assert sorted(re.findall(r"rank (\d): epoch 2, weight 3", out)) == ["0", "1"]
    names = [name for name in server.objects("bucket") if name.startswith("distributed/")]
    assert len(names) == 3  # of the last save alone: torch's metadata, and an object of each rank
