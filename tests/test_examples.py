"""Every program in examples/ does what its page says: run as a user would, a second run resumes the first."""

from __future__ import annotations

import io
import random
import re
from pathlib import Path

import pytest

from tests.edges.launch import program, ranks
from tests.servers.moto import moto

EXAMPLES = Path(__file__).parents[1] / "examples"
CLASSES, PHOTOS_PER_CLASS = ("cat", "dog", "owl"), 12
URL = "s3://bucket/photos/"
MOST_LINES = 60


@pytest.fixture(scope="module")
def variables():
    """Yield the environment that leads to a bucket with 36 photographs of mixed sizes, and a caption for each."""
    from PIL import Image

    draw = random.Random(0)
    with moto() as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        for number in range(len(CLASSES) * PHOTOS_PER_CLASS):
            jpeg, name = io.BytesIO(), CLASSES[number % len(CLASSES)]
            size = (draw.randrange(40, 200), draw.randrange(40, 200))
            Image.new("RGB", size, draw.randrange(1 << 24)).save(jpeg, "JPEG")
            client.put_object(Bucket="bucket", Key=f"photos/{name}/{number:04}.jpg", Body=jpeg.getvalue())
            client.put_object(Bucket="bucket", Key=f"captions/{number:04}.jpg", Body=jpeg.getvalue())
            client.put_object(Bucket="bucket", Key=f"captions/{number:04}.txt", Body=f"{name} {number}".encode())
        yield server.environment


def printed(ended) -> str:
    assert ended.returncode == 0, ended.stdout
    return ended.stdout


def test_every_example_is_short_tested_and_linked_from_the_readme():
    readme, tests = ((EXAMPLES.parent / each).read_text("utf-8") for each in ("README.md", "tests/test_examples.py"))
    for each in sorted(EXAMPLES.glob("*.py")):
        assert len(each.read_text("utf-8").splitlines()) < MOST_LINES, each
        assert f"(examples/{each.name})" in readme, each
        assert f'"{each.name}"' in tests, each


def test_every_program_of_another_library_is_tested():
    tests = "".join(each.read_text("utf-8") for each in Path(__file__).parent.glob("compat/**/test_*.py"))
    programs = [each.name for each in (EXAMPLES / "compat").glob("*.py")]
    assert programs
    assert [each for each in programs if f'"{each}"' not in tests] == []


def test_imagefolder_trains_and_continues_after_the_last_saved_epoch(variables):
    words = [EXAMPLES / "imagefolder.py", URL, "--run", "s3://bucket/runs/1/", "--batch-size", "8"]
    first = printed(program(*words, "--epochs", "1", **variables))
    second = printed(program(*words, "--epochs", "2", **variables))
    assert [re.findall(r"epoch (\d): accuracy \d+%", each) for each in (first, second)] == [["0"], ["1"]]


def test_captions_pairs_each_image_with_its_caption(variables):
    out = printed(program(EXAMPLES / "captions.py", "s3://bucket/captions/", "--batch-size", "12", **variables))
    assert len(re.findall(r"\(12, 3, 64, 64\) (?:cat|dog|owl) \d+\n", out)) == 3


def test_captions_names_an_image_without_a_caption(variables):
    ended = program(EXAMPLES / "captions.py", URL, **variables)
    assert ended.returncode == 1
    assert "photos/" in ended.stdout or "nothing" in ended.stdout


def test_ddp_resumes_in_mid_epoch_on_another_number_of_ranks(variables):
    words = ["ddp.py", URL, "--run", "s3://bucket/runs/2/", "--global-batch", "6", "--save-every", "4"]
    words[0] = EXAMPLES / words[0]
    first = printed(ranks(2, *words, "--epochs", "1", **variables))  # six steps, of which the fourth is the last saved
    assert re.findall(r"rank \d: epoch (\d) ended after step (\d+)", first) == [("0", "6")] * 2
    second = printed(ranks(3, *words, "--epochs", "2", **variables))
    assert sorted(re.findall(r"epoch (\d) ended after step (\d+)", second)) == [("0", "6")] * 3 + [("1", "12")] * 3


def test_lightning_continues_at_the_last_checkpoint_in_the_bucket(variables, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [EXAMPLES / "lightning_fit.py", URL, "--run", "s3://bucket/runs/3", "--batch-size", "6"]
    assert "trained up to step 2\n" in printed(program(*words, "--steps", "2", **variables))
    second = printed(program(*words, "--steps", "5", **variables))
    assert "trained up to step 5\n" in second
    assert "runs/3/last.ckpt" in second


def test_the_trainer_continues_on_another_machine(variables, tmp_path):
    words = [EXAMPLES / "hf_trainer.py", URL, "--run", "s3://bucket/runs/4/"]
    assert "trained up to step 2\n" in printed(
        program(*words, "--steps", "2", "--output", tmp_path / "one", **variables)
    )
    assert "trained up to step 4\n" in printed(
        program(*words, "--steps", "4", "--output", tmp_path / "another", **variables)
    )
    assert (tmp_path / "another" / "restored-2").is_dir()


def test_accelerate_continues_after_the_last_saved_step(variables):
    words = [EXAMPLES / "accelerate_loop.py", URL, "--run", "s3://bucket/runs/5/", "--batch-size", "6"]
    words += ["--save-every", "4"]
    cpu = variables | {"ACCELERATE_USE_CPU": "true"}
    assert "epoch 0 ended after step 6\n" in printed(program(*words, "--epochs", "1", **cpu))
    second = printed(program(*words, "--epochs", "2", **cpu))
    assert re.findall(r"epoch (\d) ended after step (\d+)", second) == [("0", "6"), ("1", "12")]
