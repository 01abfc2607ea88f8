"""Every program in examples/ does what its page says: run as a user would, a second run resumes the first."""

from __future__ import annotations

import ast
import io
import json
import random
import re
import runpy
import shlex
from pathlib import Path

import icechunk
import numpy as np
import pytest
import xarray as xr
import zarr
from numcodecs.registry import codec_registry
from obspec_utils.registry import ObjectStoreRegistry
from obstore.store import from_url
from virtualizarr import open_virtual_dataset
from virtualizarr.parsers import HDFParser

import penstock as ps
from penstock.interop.zarr import Store
from penstock.source import open_source
from tests.data.lerobot.written import robot
from tests.data.shards.mosaic import described, encoded
from tests.data.shards.mosaic import shard as mds_shard
from tests.data.video.files import encode
from tests.data.zarr import grib
from tests.data.zarr.referencefiles import put_references
from tests.edges.launch import program, ranks
from tests.images import tar
from tests.servers.moto import moto

EXAMPLES = Path(__file__).parents[1] / "examples"
CLASSES, PHOTOS_PER_CLASS = ("cat", "dog", "owl"), 12
URL = "s3://bucket/photos/"
MOST_LINES = 60
NO_TORCHCODEC = "torchcodec is not installed: its wheels of PyPI load with torch for CUDA only"


@pytest.fixture(scope="module")
def photographs():
    """Yield a server with a bucket of 36 photographs of mixed sizes, a caption for each, and two files of tokens."""
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
        _fill_shards(client, draw)
        _fill_rows(client, draw)
        for number in range(20):
            for name, kind, mode in (("images/{:04}.jpg", "JPEG", "RGB"), ("masks/{:04}.png", "PNG", "L")):
                body = encoded(kind, Image.new(mode, (90, 70), number))
                client.put_object(Bucket="bucket", Key=name.format(number), Body=body)
        for number, tokens in enumerate((20_000, 15_000)):
            body = np.random.default_rng(number).integers(0, 1024, tokens, dtype=np.uint16).tobytes()
            client.put_object(Bucket="bucket", Key=f"tokens/{number:04}.bin", Body=body)
        _fill_documents(client)
        for number in range(2):
            client.put_object(Bucket="bucket", Key=f"clips/{number}/a.mp4", Body=encode(count=46, rate=10, seed=number))
        for name, body in robot().items():
            client.put_object(Bucket="bucket", Key=f"robot/{name}", Body=body)
        yield server


def _fill_documents(client):
    """Put the documents of two sources, and their ends, as datatrove writes them; one is longer than a row."""
    for name, count in (("web", 300), ("code", 90)):
        draw = np.random.default_rng(count)
        lengths = np.append(draw.integers(2, 200, count - 1), 700)
        tokens = draw.integers(0, 1024, lengths.sum(), dtype=np.uint16)
        ends = np.cumsum(lengths).astype(np.uint64)
        client.put_object(Bucket="bucket", Key=f"{name}/a.ds", Body=tokens.tobytes())
        client.put_object(Bucket="bucket", Key=f"{name}/a.ds.index", Body=ends.tobytes())


def _fill_shards(client, draw):
    """Put 600 small images and their classes into six tar files."""
    from PIL import Image

    for shard in range(6):
        members = []
        for number in range(100):
            png = io.BytesIO()
            Image.frombytes("L", (8, 8), draw.randbytes(64)).save(png, "PNG")
            members += [(f"{number:04}.png", png.getvalue()), (f"{number:04}.cls", b"%d" % draw.randrange(10))]
        client.put_object(Bucket="bucket", Key=f"shards/train-{shard:04}.tar", Body=tar(members))


def _fill_rows(client, draw):
    """Put 120 small images and their classes into two Parquet files, as Hugging Face's datasets have them."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    for number in range(2):
        images = [encoded("PNG", Image.frombytes("L", (8, 8), draw.randbytes(64))) for _ in range(60)]
        structs = [{"bytes": each, "path": None} for each in images]
        table = pa.table({"image": structs, "caption": ["unused"] * 60, "label": [draw.randrange(10) for _ in images]})
        file = io.BytesIO()
        pq.write_table(table, file, row_group_size=20)
        client.put_object(Bucket="bucket", Key=f"rows/train-{number:05}-of-00002.parquet", Body=file.getvalue())


@pytest.fixture
def variables(photographs):
    """Return the environment that leads to the photographs."""
    return photographs.environment


@pytest.fixture
def no_runs(photographs):
    """Delete what other tests have trained."""
    client = photographs.client()
    pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix="runs/")
    for key in filter(None, pages.search("Contents[].Key")):
        client.delete_object(Bucket="bucket", Key=key)


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


def test_every_script_of_slurm_is_tested_and_linked_from_the_manual():
    tests = "".join(each.read_text("utf-8") for each in Path(__file__).parent.glob("compat/**/test_*.py"))
    manual = (EXAMPLES.parent / "docs" / "distributed.md").read_text("utf-8")
    scripts = [each.name for each in (EXAMPLES / "slurm").iterdir()]
    assert sorted(scripts) == ["srun.sh", "torchrun.sh"]
    assert [each for each in scripts if f'"{each}"' not in tests or f"(../examples/slurm/{each})" not in manual] == []


def test_imagefolder_trains_and_continues_after_the_last_saved_epoch(variables):
    words = [EXAMPLES / "imagefolder.py", URL, "--run", "s3://bucket/runs/1/", "--batch-size", "8"]
    first = printed(program(*words, "--epochs", "1", **variables))
    second = printed(program(*words, "--epochs", "2", **variables))
    assert [re.findall(r"epoch (\d): accuracy \d+%", each) for each in (first, second)] == [["0"], ["1"]]


def test_shards_are_trained_on_and_continued(variables):
    words = [EXAMPLES / "shards.py", "s3://bucket/shards/train-{0000..0005}.tar", "--run", "s3://bucket/runs/9/"]
    first = printed(program(*words, "--epochs", "1", **variables))
    second = printed(program(*words, "--epochs", "2", **variables))
    found = [re.findall(r"epoch (\d): loss \d\.\d+ after (\d+) steps", each) for each in (first, second)]
    assert found == [[("0", "12")], [("1", "24")]]


def test_shards_of_mosaic_are_trained_on_and_continued_in_mid_epoch(photographs, variables):
    from PIL import Image

    draw, client, shards = random.Random(1), photographs.client(), []
    columns = {"image": ("png", None), "class": ("int", 8)}
    for number in range(3):
        rows = []
        for _ in range(100):
            image = encoded("PNG", Image.frombytes("L", (8, 8), draw.randbytes(64)))
            rows.append({"image": image, "class": draw.randrange(10).to_bytes(8, "little")})
        shards.append((f"shard.{number:05}.mds", mds_shard(columns, rows)))
    index = json.dumps({"version": 2, "shards": [described(*each) for each in shards]}).encode()
    for name, data in [*shards, ("index.json", index)]:
        client.put_object(Bucket="bucket", Key=f"mds/{name}", Body=data)
    words = [EXAMPLES / "mds.py", "s3://bucket/mds/", "--run", "s3://bucket/runs/12/"]
    first = printed(program(*words, "--steps", "8", **variables))
    second = printed(program(*words, "--steps", "12", **variables))
    found = [re.findall(r"step (\d+): loss \d+\.\d+", each) for each in (first, second)]
    assert found == [["6", "8"], ["12"]], "six steps an epoch"


def test_parquet_images_of_hugging_face_are_trained_on_and_continued(variables):
    words = [EXAMPLES / "parquet_images.py", "s3://bucket/rows/", "--run", "s3://bucket/runs/13/"]
    found = [printed(program(*words, "--epochs", epochs, **variables)) for epochs in "12"]
    assert [re.findall(r"epoch (\d): loss \d+\.\d+, 120 images", each) for each in found] == [["0"], ["1"]]


def test_masks_are_paired_with_their_images_and_the_training_continues(variables):
    words = [EXAMPLES / "masks.py", "s3://bucket/images/", "s3://bucket/masks/", "--run", "s3://bucket/runs/14/"]
    found = [printed(program(*words, "--epochs", epochs, **variables)) for epochs in "12"]
    assert [re.findall(r"epoch (\d): loss \d+\.\d+, 20 pairs", each) for each in found] == [["0"], ["1"]]


def test_masks_names_an_image_without_a_mask(variables):
    ended = program(
        EXAMPLES / "masks.py", f"{URL}cat/", "s3://bucket/masks/", "--run", "s3://bucket/runs/15/", **variables
    )
    assert ended.returncode == 1
    assert "'0021' has no 'mask', only image" in ended.stdout


def test_a_mixture_is_trained_on_and_continued_with_other_weights(variables):
    words = [EXAMPLES / "mixture.py", URL, "s3://bucket/shards/", "--run", "s3://bucket/runs/11/"]
    first = printed(program(*words, "--epochs", "1", **variables))
    second = printed(program(*words, "--epochs", "2", "--weights", "1", "3", **variables))
    found = [re.findall(r"epoch (\d): loss \d+\.\d+ after (\d+) steps", each) for each in (first, second)]
    assert found == [[("0", "12")], [("1", "24")]]


def test_tokens_continues_after_the_last_saved_step(variables):
    words = [EXAMPLES / "tokens.py", "s3://bucket/tokens/", "--run", "s3://bucket/runs/10/", "--vocabulary", "1024"]
    words += ["--batch-size", "8", "--save-every", "6"]  # 17 steps, of which the twelfth is the last saved
    first = printed(program(*words, **variables))
    second = printed(program(*words, "--epochs", "2", **variables))
    assert "35000 tokens, 136 windows, 182 tokens left out" in first
    steps = [re.findall(r"step (\d+): loss \d+\.\d\d", each) for each in (first, second)]
    assert steps == [["17"], ["17", "34"]]


def test_video_continues_after_the_last_saved_step(variables):
    words = [EXAMPLES / "video.py", "s3://bucket/clips/", "--run", "s3://bucket/runs/30/", "--save-every", "2"]
    first = printed(program(*words, **variables))
    second = printed(program(*words, "--epochs", "2", **variables))
    # Steps 1 to 4 are saved, and the fifth is done again.
    assert "20 clips of 0, 1, 4 frames left out" in first
    steps = [re.findall(r"step (\d+): loss \d+\.\d\d", each) for each in (first, second)]
    assert steps == [["5"], ["5", "10"]]


def test_jpegs_are_decoded_in_whole_batches_of_mixed_sizes(variables):
    pytest.importorskip("torchcodec", reason=NO_TORCHCODEC)
    out = printed(program(EXAMPLES / "jpegs.py", URL, "--device", "cpu", "--batch-size", "8", **variables))
    assert re.findall(r"epoch (\d): loss \d+\.\d\d, \d+ images/s", out) == ["0", "1"]


def test_lerobot_continues_after_the_last_saved_step(variables):
    words = [EXAMPLES / "lerobot.py", "s3://bucket/robot/", "--run", "s3://bucket/runs/31/"]
    words += ["--batch-size", "4", "--horizon", "3", "--save-every", "6"]  # 8 steps, of which the sixth is saved
    first = printed(program(*words, **variables))
    second = printed(program(*words, "--epochs", "2", **variables))
    assert "31 samples of 5 episodes, 2 cameras at 10 fps" in first
    steps = [re.findall(r"step (\d+): loss \d+\.\d\d", each) for each in (first, second)]
    assert steps == [["8"], ["8", "16"]]


def test_grain_mixture_continues_after_the_last_saved_step(photographs, variables):
    words = [EXAMPLES / "grain_mixture.py", "s3://bucket/web/", "s3://bucket/code/", "--run"]
    first = printed(program(*words, "s3://bucket/runs/20/", "--steps", "15", **variables))
    second = printed(program(*words, "s3://bucket/runs/20/", "--steps", "30", **variables))
    steps = [re.findall(r"step (\d+): loss \d+\.\d+ on 300 and 90 documents", each) for each in (first, second)]
    assert steps == [["10"], ["20", "30"]]
    printed(program(*words, "s3://bucket/runs/21/", "--steps", "30", **variables))
    runs = [ps.CheckpointManager(f"s3://bucket/runs/{run}/", store=photographs.store) for run in (20, 21)]
    stopped, whole = (run.restore()["data"] for run in runs)
    assert stopped == whole


def test_captions_pairs_each_image_with_its_caption(variables):
    out = printed(program(EXAMPLES / "captions.py", "s3://bucket/captions/", "--batch-size", "12", **variables))
    assert len(re.findall(r"\(12, 3, 64, 64\) (?:cat|dog|owl) \d+\n", out)) == 3


PARTS_OF_PAIRS = """
import sys
sys.path.insert(0, {folder!r})
from captions import pair
import penstock as ps, torch
whole = ps.MapDataset.from_prefix("s3://bucket/captions/", group="stem", fields=("jpg", "txt"), transform=pair)
names = [entry.key for entry in whole.catalog]
def check(dataset, rows):
    expected = [ps.open(f"s3://bucket/{{names[row][:-4]}}.txt").read().decode() for row in rows]
    read = [text for batch in ps.DataLoader(dataset, 5, collate_fn=list) for _, text in batch]
    assert read == expected, (read, expected)
check(whole, range(36))
check(whole[5:], range(5, 36))
check(whole[::3], range(0, 36, 3))
check(whole[::-1], range(35, -1, -1))
for part in torch.utils.data.random_split(whole, [0.7, 0.3]):
    check(part, part.indices)
for part in (*whole.catalog.split(0.7), whole.catalog[7:9], whole.catalog.filter(include="**/00[12]*")):
    check(ps.MapDataset(part, transform=pair), [names.index(entry.key) for entry in part])
"""


def test_captions_keeps_its_pairs_in_every_part(variables, tmp_path):
    (tmp_path / "parts.py").write_text(PARTS_OF_PAIRS.format(folder=str(EXAMPLES)), "utf-8")
    printed(program(tmp_path / "parts.py", **variables))


def test_captions_names_an_image_without_a_caption(variables):
    ended = program(EXAMPLES / "captions.py", URL, **variables)
    assert ended.returncode == 1
    assert "samples lack a field: 'cat/0000' has no 'txt', only jpg" in ended.stdout


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


@pytest.fixture(scope="module")
def fields():
    """Yield the environment that leads to a bucket with small stores of four layouts."""
    with moto() as server:
        server.client().create_bucket(Bucket="bucket")
        for name, write in (("cwb", corrdiff), ("cmip6", cmip6), ("era5", era5), ("image", microscopy)):
            write(Store(f"s3://bucket/{name}", store=server.store))
        for name, first in (("2019", "2019-01-02"), ("2020", "2019-12-28")):
            year(Store(f"s3://bucket/years/{name}.zarr", store=server.store), first)
        carriers(server)
        yield server.environment | {"AWS_ALLOW_HTTP": "true"}


def carriers(server):
    """Put two NetCDF files, two GRIB messages, and cells as AnnData writes them."""
    client = server.client()
    for number in range(2):
        times = np.datetime64("2020-01-01", "ns") + (4 * number + np.arange(4)) * np.timedelta64(1, "D")
        fields = xr.Dataset({"t2m": (("time", "lat", "lon"), np.full((4, 3, 5), number, "f4"))}, {"time": times})
        body = bytes(fields.to_netcdf(engine="h5netcdf", encoding={"t2m": {"chunksizes": (2, 3, 5)}}))
        client.put_object(Bucket="bucket", Key=f"netcdf/{number}.nc", Body=body)
    client.put_object(Bucket="bucket", Key="t.grib2", Body=b"".join(grib.MESSAGES))
    refs = json.dumps(grib.references("s3://bucket/t.grib2"))
    client.put_object(Bucket="bucket", Key="grib.json", Body=refs.encode())
    cells = zarr.open_group(Store("s3://bucket/cells.zarr", store=server.store), mode="w")
    cells.attrs["encoding-type"] = "anndata"
    for name, values in (("X", np.ones((40, 7), "f4")), ("obs/cell_type/codes", np.arange(40, dtype="i1") % 3)):
        cells.create_array(name, data=values, chunks=(10, *values.shape[1:]))


def corrdiff(store):
    """Write what ``2023-01-24-cwb-4years.zarr`` has, 40 times of it."""
    draw = np.random.default_rng(0)
    group = zarr.open_group(store, mode="w", zarr_format=2)

    def add(name, values, dims, chunks):
        array = group.create_array(name, shape=values.shape, dtype=values.dtype, chunks=chunks)
        array[:] = values
        array.attrs["_ARRAY_DIMENSIONS"] = dims

    for name, channels in (("era5", 3), ("cwb", 2)):
        dims = ["time", f"{name}_channel", "south_north", "west_east"]
        shape = (40, channels, 12, 16)
        add(name, draw.normal(280, 10, shape).astype("f4"), dims, (1, *shape[1:]))
        add(f"{name}_center", np.full(channels, 280, "f4"), dims[1:2], (channels,))
        add(f"{name}_scale", np.full(channels, 10, "f4"), dims[1:2], (channels,))
        add(f"{name}_valid", (np.arange(40) % 9 != len(name)).astype("i1"), ["time"], (40,))
    zarr.consolidate_metadata(store)


def cmip6(store):
    values = np.random.default_rng(0).normal(280, 10, (64, 9, 14))
    values[3, 0, 0] = np.nan
    packed = {"chunks": (16, 9, 14), "dtype": "i2", "scale_factor": 0.01, "add_offset": 273.0, "_FillValue": -32768}
    dataset = xr.Dataset({"tas": (("time", "lat", "lon"), values)}, {"time": np.arange(64)})
    dataset.to_zarr(store, zarr_format=2, consolidated=True, encoding={"tas": packed})


def era5(store):
    draw = np.random.default_rng(0)
    group = zarr.open_group(store, mode="w")
    for name in ("t2m", "z500"):
        layout = {"shape": (24, 8, 16), "chunks": (1, 8, 16), "shards": (8, 8, 16), "dtype": "f4"}
        array = group.create_array(name, dimension_names=("time", "latitude", "longitude"), **layout)
        array[:] = draw.normal(0, 1, (24, 8, 16))


def year(store, first):
    times = np.datetime64(first, "ns") + np.arange(12) * np.timedelta64(30, "D")
    values = np.random.default_rng(0).normal(280, 10, (12, 6, 8)).astype("f4")
    dataset = xr.Dataset({"t2m": (("time", "latitude", "longitude"), values)}, {"time": times})
    dataset.to_zarr(store, zarr_format=2, consolidated=True, encoding={"t2m": {"chunks": (5, 6, 8)}})


def microscopy(store):
    pixels = np.random.default_rng(0).integers(0, 255, (2, 80, 80), dtype="u1")
    axes = [{"name": name, "type": kind} for name, kind in (("c", "channel"), ("y", "space"), ("x", "space"))]
    group = zarr.open_group(store, mode="w", zarr_format=2)
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0"}]}]
    keys = {"name": "v2", "separator": "/"}
    group.create_array("0", shape=pixels.shape, chunks=(1, 40, 40), dtype="u1", chunk_key_encoding=keys)[:] = pixels


def test_corrdiff_trains_from_a_bucket_and_from_a_path_alike(fields, tmp_path):
    corrdiff(Store(tmp_path / "cwb.zarr"))
    outs = [
        printed(program(EXAMPLES / "zarr_corrdiff.py", url, **fields))
        for url in (tmp_path / "cwb.zarr", "s3://bucket/cwb")
    ]
    assert [re.findall(r"epoch 0: (\d+) of 40 times", each) for each in outs] == [["31"], ["31"]]


def test_cmip6_learns_and_continues(fields):
    words = [EXAMPLES / "zarr_cmip6.py", "s3://bucket/cmip6", "--run", "s3://bucket/run/"]
    outs = [printed(program(*words, "--epochs", epochs, **fields)) for epochs in ("1", "2")]
    found = [re.findall(r"epoch (\d): loss (\d+\.\d+)", each) for each in outs]
    assert [epoch for ((epoch, _),) in found] == ["1", "2"]
    assert all(float(loss) < 2 for ((_, loss),) in found), "packed values were decoded"


def test_rollouts_grow(fields):
    out = printed(program(EXAMPLES / "zarr_rollouts.py", "s3://bucket/era5", "--steps", "2", **fields))
    assert re.findall(r"rollouts of (\d): loss \d", out) == ["1", "2"]


def test_years_are_split_normalised_and_validated(fields):
    words = [EXAMPLES / "zarr_years.py", "s3://bucket/years/*.zarr", "2020", "--statistics", "s3://bucket/years.json"]
    out = printed(program(*words, **fields))
    [(mean, std)] = re.findall(r"^t2m: mean (\d+\.\d+), std (\d+\.\d+)", out, re.MULTILINE)
    assert abs(float(mean) - 280) < 2
    assert abs(float(std) - 10) < 2
    losses = re.findall(r"epoch \d: \d+ samples, validation loss (\d+\.\d+)", out)
    assert len(losses) == 2
    assert all(float(each) < 10 for each in losses)


def test_microscopy_reads_patches_with_a_border(fields):
    out = printed(program(EXAMPLES / "zarr_microscopy.py", "s3://bucket/image", **fields))
    assert "8 patches of 32 x 32" in out


@pytest.fixture
def carrier(fields, tmp_path, monkeypatch, capsys):
    """Return a function that runs the program of carriers in this process, and returns what it printed."""
    for name, value in fields.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run(*words):
        monkeypatch.setattr("sys.argv", ["zarr_carriers.py", *words])
        runpy.run_path(str(EXAMPLES / "zarr_carriers.py"))
        return capsys.readouterr().out

    return run


def test_carriers_netcdf_and_its_references_in_json_and_parquet(carrier):
    assert carrier("s3://bucket/netcdf/*.nc", "t2m") == "8 samples of (3, 5), mean 0.500\n"
    registry = ObjectStoreRegistry({"s3://bucket": from_url("s3://bucket/")})
    made = open_virtual_dataset("s3://bucket/netcdf/1.nc", registry, parser=HDFParser(), loadable_variables=[])
    made.vz.to_kerchunk("refs.json", format="json")
    assert carrier("./refs.json", "t2m") == "4 samples of (3, 5), mean 1.000\n"
    source, key = open_source("./refs.parq")
    put_references(source, key, json.loads(Path("refs.json").read_text("utf-8"))["refs"], 3)
    assert carrier("./refs.parq", "t2m") == "4 samples of (3, 5), mean 1.000\n"


def test_carriers_grib_by_references(carrier, monkeypatch):
    monkeypatch.setitem(codec_registry, "grib", grib.Grib)
    assert carrier("s3://bucket/grib.json", "t") == "2 samples of (3, 5), mean 287.250\n"


def test_carriers_icechunk(carrier):
    repository = icechunk.Repository.create(icechunk.local_filesystem_storage("fields.icechunk"))
    session = repository.writable_session("main")
    zarr.create_array(session.store, name="t2m", data=np.ones((6, 2), "f4"), dimension_names=("time", "x"))
    session.commit("written")
    assert carrier("fields.icechunk", "t2m") == "6 samples of (2,), mean 1.000\n"


def test_carriers_cells_of_anndata_with_their_types(carrier):
    found = carrier("s3://bucket/cells.zarr", "X", "--targets", "obs/cell_type/codes")
    assert found == "40 samples of (7,), mean 1.000\n"


LAUNCHERS = {
    "python": (),
    "torchrun": ("-m", "torch.distributed.run"),
    "accelerate launch": ("-m", "accelerate.commands.accelerate_cli", "launch"),
}
# DistributedDataParallel keeps gloo's threads alive after destroy_process_group. One that still frees the state of the
# last collective while its interpreter ends is aborted by CPython 3.11: the training is over by then. Seen once.
ABORTED = "terminate called without an active exception"
# What a command line of a docstring has that this machine does not: eight GPUs, and the stores and folders of others.
ELSEWHERE = {
    "--nproc-per-node 8": "--nproc-per-node 2",
    "s3://cmip6-pds/CMIP6/…/day/tas/gr1/v20180701/": "s3://bucket/cmip6",
    "/code/2023-01-24-cwb-4years.zarr": "s3://bucket/cwb",
    "s3://cwb/2023-01-24-cwb-4years.zarr": "s3://bucket/cwb",
    "s3://bucket/image.ome.zarr/0": "s3://bucket/image",
    "s3://bucket/era5.zarr": "s3://bucket/era5",
}
COMMAND = re.compile(rf"(?:{'|'.join(LAUNCHERS)}) (?:\S+ )*?examples/\S+\.py\b[^\n]*")


def commands():
    """Return the command lines in the docstrings of the programs, by file."""
    found = {each: ast.get_docstring(ast.parse(each.read_text("utf-8"))) for each in sorted(EXAMPLES.glob("*.py"))}
    return [(each.name, line) for each, text in found.items() for line in COMMAND.findall(text)]


def test_every_example_program_documents_its_command_line():
    assert {name for name, _ in commands()} == {each.name for each in EXAMPLES.glob("*.py")}


@pytest.mark.parametrize(("name", "line"), commands())
def test_documented_command_line_of_example_runs(name, line, request, tmp_path, monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    if name == "jpegs.py":
        pytest.importorskip("torchcodec", reason=NO_TORCHCODEC)
    if name == "lightning_fit.py":
        line = line.replace("examples/", f"{EXAMPLES}/")
        monkeypatch.chdir(tmp_path)  # Lightning writes its logs there
    for theirs, ours in ELSEWHERE.items():
        line = line.replace(theirs, ours)
    line = line.replace("/tmp/", f"{tmp_path}/")  # noqa: S108  what the docstring says
    launcher = next(each for each in LAUNCHERS if line.startswith(f"{each} "))
    if not name.startswith("zarr_"):
        request.getfixturevalue("no_runs")
    store = request.getfixturevalue("fields" if name.startswith("zarr_") else "variables")
    cpu = {"ACCELERATE_USE_CPU": "true", "ACCELERATE_MIXED_PRECISION": "no"}
    command = *LAUNCHERS[launcher], *shlex.split(line.removeprefix(launcher))
    ended = program(*command, **store | cpu)
    if launcher != "python" and ABORTED in ended.stdout:
        ended = program(*command, **store | cpu)
    printed(ended)
