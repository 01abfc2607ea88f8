"""zarr-torch-dataset's names and arguments: the same samples as the library's, its README's program on two ranks."""

from __future__ import annotations

import gc
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import zarr
from torch.utils.data import DataLoader

from penstock.compat.zarrdataset import ZarrDataLoader, ZarrIterableDataset
from penstock.errors import Unusable
from penstock.interop.zarr import Store
from tests.edges.launch import ranks
from tests.edges.slurm import sbatch

EXAMPLES = Path(__file__).parents[2] / "examples"
PROGRAMS, SLURM = EXAMPLES / "compat", EXAMPLES / "slurm"
SAMPLES, CHUNK = 100, 16
VALUES = np.arange(SAMPLES * 3, dtype="f4").reshape(SAMPLES, 3)
LABELS = np.arange(SAMPLES, dtype="i8")


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrays")
    made = []
    for name, values in (("samples", VALUES), ("targets", LABELS)):
        chunks = (CHUNK, *values.shape[1:])
        array = zarr.create_array(f"{folder}/{name}", shape=values.shape, chunks=chunks, dtype=values.dtype)
        array[...] = values
        made.append(zarr.open_array(f"{folder}/{name}", mode="r"))
    return made


def delivered(loader):
    return [int(label) for _, labels in loader for label in labels]


def of_chunks(*chunks):
    return [at for chunk in chunks for at in range(chunk * CHUNK, min((chunk + 1) * CHUNK, SAMPLES))]


# What the library delivers of these arrays was compared in an environment of its own, samples and types, with 0 and 2
# workers: multisets are equal in all cases, the order where nothing is shuffled.
@pytest.mark.parametrize("selected", [None, 3, [5, 0, -1], np.array([2, 4])], ids=["all", "one", "several", "array"])
@pytest.mark.parametrize("shuffled", [(False, False), (True, True), (True, False), (False, True)], ids=str)
def test_each_sample_of_the_selected_chunks_comes_once(arrays, selected, shuffled):
    samples, targets = arrays
    dataset = ZarrIterableDataset(
        samples=samples,
        targets=targets,
        selected_chunk_indexes=selected,
        shuffle_chunks=shuffled[0],
        chunks_shuffle_seed=42,
        shuffle_buffer=shuffled[1],
        buffer_shuffle_seed=7,
    )
    loader = ZarrDataLoader(dataset=dataset, batch_size=10)
    first, second = delivered(loader), delivered(loader)
    chosen = range(7) if selected is None else [each % 7 for each in np.atleast_1d(selected).tolist()]
    expected = of_chunks(*chosen)
    assert sorted(first) == sorted(second) == sorted(expected)
    if not any(shuffled):
        assert first == second == expected
    elif selected is None:
        assert first not in (second, expected)
    if shuffled == (True, False):
        runs = [at for at in range(1, len(first)) if first[at] != first[at - 1] + 1]
        assert len(runs) <= len(chosen), "chunks stay as they are"
    for values, labels in loader:
        assert torch.equal(values, torch.from_numpy(VALUES[labels.numpy()]))
        assert (values.dtype, labels.dtype) == (torch.float32, torch.int64)


def test_samples_alone_targets_of_numpy_urls_and_torchs_loader(arrays):
    samples, _ = arrays
    alone = ZarrIterableDataset(samples=samples, targets=None, shuffle_chunks=False, shuffle_buffer=False)
    assert torch.equal(torch.cat([*ZarrDataLoader(dataset=alone, batch_size=32)]), torch.from_numpy(VALUES))
    url = str(samples.store.root)
    dataset = ZarrIterableDataset(samples=url, targets=LABELS, shuffle_chunks=True, chunks_shuffle_seed=1)
    assert sorted(delivered(DataLoader(dataset, 8))) == [*range(SAMPLES)]
    folder = Path(dataset._written(LABELS, 4, "x")).parent
    assert folder.exists()
    del dataset
    gc.collect()
    assert not folder.exists(), "what was written goes with the dataset"


@pytest.mark.parametrize("how", ["opened", "url", "path"])
def test_samples_and_targets_may_be_groups(tmp_path, how):
    store = Store if how == "url" else str
    for name, arrays in (("samples", {"t": (40, 3), "u": (40, 2, 2)}), ("targets", {"label": (40,)})):
        group = zarr.open_group(store(f"{tmp_path}/{name}"), mode="w")
        for array, shape in arrays.items():
            values = np.broadcast_to(np.arange(40.0).reshape(40, *[1] * (len(shape) - 1)), shape)
            group.create_array(array, shape=shape, chunks=(8, *shape[1:]), dtype="f4")[...] = values
    given = [f"{tmp_path}/{name}" for name in ("samples", "targets")]
    if how != "path":
        given = [zarr.open(store(each), mode="r") for each in given]
    dataset = ZarrIterableDataset(
        samples=given[0], targets=given[1], selected_chunk_indexes=[0, -1], chunks_shuffle_seed=1
    )
    seen = []
    for samples, targets in ZarrDataLoader(dataset=dataset, batch_size=5):
        assert [*samples] == ["t", "u"]
        assert [*targets] == ["label"]
        assert samples["u"].shape[1:] == (2, 2)
        for values in samples.values():
            assert torch.equal(values.flatten(1)[:, 0], targets["label"])
        seen += targets["label"].tolist()
    assert sorted(seen) == [*range(8), *range(32, 40)]


def test_the_static_methods_of_the_library_are_there(arrays):
    samples, _ = arrays
    assert ZarrIterableDataset.refine_chunk_indexes(7, None).tolist() == [*range(7)]
    assert ZarrIterableDataset.refine_chunk_indexes(7, 3).tolist() == [3]
    assert ZarrIterableDataset.refine_chunk_indexes(7, (0, -1)).tolist() == [0, -1]
    ZarrIterableDataset.check_distribution_ability(samples, None, world_size=5, num_workers=9, array_name="samples")
    for wrong in ((None, 0, 1), (None, 1, -1), ([7], 1, 1)):
        with pytest.raises(Unusable):
            ZarrIterableDataset.check_distribution_ability(samples, *wrong)


def test_drop_last_leaves_out_the_incomplete_batch_and_the_loader_has_a_state(arrays):
    samples, targets = arrays
    dataset = ZarrIterableDataset(samples=samples, targets=targets, chunks_shuffle_seed=3)
    loader = ZarrDataLoader(dataset=dataset, batch_size=30, drop_last=True)
    assert len(delivered(loader)) == 90
    assert loader.state_dict()["epoch"] == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "chunks_shuffle_seed"),
        ({"selected_chunk_indexes": 7}, "beyond the 7 chunks"),
        ({"selected_chunk_indexes": []}, "non-empty"),
        ({"targets": LABELS[:5]}, "100 samples and 5 targets"),
        ({"samples": VALUES}, "not an ndarray; targets may be"),
        ({"shuffle_chunks": "no"}, "shuffle_chunks must be True or False, got 'no'"),
        ({"chunks_shuffle_seed": "7"}, "chunks_shuffle_seed must be a whole number"),
        ({"buffer_shuffle_seed": 0.5}, "buffer_shuffle_seed must be a whole number"),
        ({"targets": np.array(3)}, "targets must be numbers along the first dimension"),
        ({"targets": np.array([None] * SAMPLES)}, "targets must be numbers along the first dimension"),
        ({"targets": [1, 2]}, "arrays or groups that zarr has opened, or their URLs, not a list; targets"),
    ],
)
def test_wrong_arguments_are_refused(arrays, how, said):
    samples, targets = arrays
    seed = {} if how == {} else {"chunks_shuffle_seed": 1}
    with pytest.raises(Unusable, match=said):
        ZarrIterableDataset(**{"samples": samples, "targets": targets, **seed, **how})


def test_a_scalar_is_refused(tmp_path):
    scalar = zarr.create_array(f"{tmp_path}/scalar", shape=(), dtype="f4")
    with pytest.raises(Unusable, match="samples has no dimension"):
        ZarrIterableDataset(samples=scalar, targets=None, chunks_shuffle_seed=1)


@pytest.mark.parametrize("how", ["opened", "url"])
def test_a_level_of_an_image_of_ome_zarr_has_its_names(tmp_path, how):
    image = zarr.create_group(str(tmp_path), zarr_format=2)
    image.attrs["multiscales"] = [{"axes": ["t", "x"], "datasets": [{"path": "0"}]}]
    image.create_array("0", shape=VALUES.shape, chunks=(CHUNK, 3), dtype="f4")[...] = VALUES
    samples = f"{tmp_path}/0" if how == "url" else zarr.open_array(f"{tmp_path}/0", mode="r")
    dataset = ZarrIterableDataset(samples=samples, targets=LABELS, chunks_shuffle_seed=1)
    assert sorted(delivered(ZarrDataLoader(dataset=dataset))) == [*range(SAMPLES)]


def test_dimensions_of_other_names_are_refused(tmp_path):
    made = [
        zarr.create_array(Store(f"{tmp_path}/{name}"), shape=(4,), chunks=(2,), dtype="f4", dimension_names=(name,))
        for name in ("time", "t")
    ]
    with pytest.raises(Unusable, match="'time', and that of targets 't'"):
        ZarrIterableDataset(samples=made[0], targets=made[1], chunks_shuffle_seed=1)


@pytest.fixture(scope="module")
def readme(tmp_path_factory):
    """Return a folder with the arrays that the programs of the README open."""
    folder = tmp_path_factory.mktemp("readme")
    for name, count in (("train", 200), ("validation", 90)):
        for what, shape in (("samples_zarr", (count, 8)), ("targets", (count,))):
            path = f"{folder}/{name}_{what}{'_zarr' * (name == 'train' and what == 'targets')}"
            zarr.create_array(Store(path), shape=shape, chunks=(16, *shape[1:]), dtype="f4")[...] = 0.5
    return folder


def test_the_program_of_the_readme_on_two_ranks(readme):
    slurm = {"SLURM_GPUS_ON_NODE": "2", "SLURM_NNODES": "1", "WORKERS": "0"}
    ended = ranks(2, PROGRAMS / "zarr_lightning.py", readme, **slurm)
    assert ended.returncode == 0, ended.stdout
    # 200 samples on two ranks in batches of 32: four batches on each
    assert sorted(re.findall(r"rank (\d): (\d) steps", ended.stdout)) == [("0", "4"), ("1", "4")]


# Each task imports Lightning.
@pytest.mark.parametrize(
    ("nodes", "tasks"), [(1, 2), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((1, 4), (2, 2)))]
)
def test_the_slurm_script_of_the_readme(readme, tmp_path, nodes, tasks):
    own = {"nodes": str(nodes), "ntasks_per_node": str(tasks), "gres": f"gpu:{tasks}"}
    ended = sbatch(
        SLURM / "srun.sh",
        PROGRAMS / "zarr_lightning.py",
        readme,
        folder=tmp_path,
        environment={"PYTHONPATH": os.pathsep.join(sys.path), "WORKERS": "0" if nodes == 1 else "2"},
        **({} if tasks == 4 else own),
    )
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.endswith("> script completed with exit code 0\n")
    # 200 samples in batches of 32: four batches on each of two ranks, two on each of four
    world = nodes * tasks
    expected = [(str(rank), str(8 // world)) for rank in range(world)]
    assert sorted(re.findall(r"rank (\d): (\d) steps", ended.stdout)) == expected


@pytest.mark.parametrize("script", ["srun.sh", "torchrun.sh"])
def test_plain_pytorch_on_two_nodes_of_slurm(readme, tmp_path, script):
    own = {"nodes": "2", "ntasks_per_node": "1"} if script == "srun.sh" else {}
    ended = sbatch(
        SLURM / script,
        PROGRAMS / "zarr_pytorch.py",
        readme,
        folder=tmp_path,
        environment={"PYTHONPATH": os.pathsep.join(sys.path)},
        gpus_per_node="1",
        **own,
    )
    assert ended.returncode == 0, ended.stdout
    expected = [(str(rank), str(epoch), "4", "100") for rank in range(2) for epoch in range(2)]
    found = re.findall(r"rank (\d) of 2: epoch (\d), (\d) steps, (\d+) samples", ended.stdout)
    assert sorted(found) == expected


def test_torchrun_passes_a_program_its_options(tmp_path):
    program = tmp_path / "words.py"
    program.write_text("import sys\nprint(sys.argv[1:])\n")
    options = ["s3://bucket/train/", "--run", "s3://bucket/runs/1/", "-m"]  # torchrun has --run-path and -m
    ended = sbatch(
        SLURM / "torchrun.sh", program, *options, folder=tmp_path, environment={}, nodes="1", gpus_per_node="1"
    )
    assert ended.returncode == 0, ended.stdout
    assert f"{options}\n" in ended.stdout


def test_a_job_of_slurm_fails_where_a_task_fails(tmp_path):
    program = tmp_path / "fails.py"
    program.write_text("import os, signal, sys\nif os.environ['RANK'] == '3':\n    sys.exit(5)\nsignal.pause()\n")
    ended = sbatch(SLURM / "srun.sh", program, folder=tmp_path, environment={})
    assert ended.returncode == 5
    assert ended.stdout == "> script completed with exit code 5\n"
