"""The command seen: the log of a run, from its checkpoints alone, with a catalog, and with its loader."""

from __future__ import annotations

import json
from itertools import islice

import pytest
import torch

import penstock as ps
from tests.data.datasets.transforms import number, numbered

SAMPLES = 20


def make_loader(folder, *, shuffle=True, **options):
    dataset = ps.MapDataset.from_prefix(folder, transform=number)
    mix = ps.Mix({"a": dataset, "b": dataset}) if options.pop("mix", False) else dataset
    return ps.DataLoader(mix, 4, shuffle=shuffle, collate_fn=list, **options)


def train(folder, loader, steps=(2, 3, 7)):
    """Save checkpoints of a run; return the samples of each batch."""
    run, log = ps.CheckpointManager(folder), []
    while len(log) < steps[-1]:
        for batch in islice(loader, steps[-1] - len(log)):
            log.append(batch)
            if len(log) in steps:
                run.save(len(log), {"weight": torch.zeros(1000)}, loader=loader)
    return log


def indices(done):
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    last = rows[-1]["batch"] if rows else -1
    return [[row["index"] for row in rows if row["batch"] == each] for each in range(last + 1)], rows


@pytest.mark.parametrize("shuffle", [True, ps.order.Lanes(4, 2)])
def test_the_log_of_a_run_follows_from_its_checkpoints(penstock, tmp_path, shuffle):
    data = numbered(tmp_path / "data", SAMPLES)
    log = train(tmp_path / "run", make_loader(data, shuffle=shuffle, seed=3))
    assert indices(penstock("seen", f"{tmp_path}/run", "7", "--json"))[0] == log[3:]
    if shuffle is True:
        whole = penstock("seen", f"{tmp_path}/run", "7", "--since", "start", "--json")
        assert indices(whole)[0] == log
        assert "28 samples, 7 global batches" in whole.stderr
        assert "on_error" in whole.stderr
        assert "epoch 0 is assumed to have been iterated to the end" in whole.stderr
        assert indices(penstock("seen", f"{tmp_path}/run", "2", "--json"))[0] == log[:2]


def test_a_catalog_names_the_samples(penstock, tmp_path):
    data = numbered(tmp_path / "data", SAMPLES)
    log = train(tmp_path / "run", make_loader(data))
    ps.Catalog.scan(data).save(tmp_path / "train.catalog")
    words = ["seen", f"{tmp_path}/run", "3", "--since", "2", "--catalog", f"{tmp_path}/train.catalog"]
    _, rows = indices(penstock(*words, "--json"))
    assert [int(row["url"].rpartition("/")[2]) for row in rows] == log[2]
    lines = penstock(*words).stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [["0", str(each)] for each in log[2]]
    assert lines[0].endswith(f"/{log[2][0]:03d}")
    numbered(tmp_path / "data", SAMPLES + 1)
    ps.Catalog.scan(data).save(tmp_path / "train.catalog")
    refused = penstock(*words)
    assert (refused.returncode, "the catalog differs" in refused.stderr) == (1, True)


def test_a_mixture_is_listed_by_its_loader_and_refused_without(penstock, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    numbered(tmp_path / "seen-data", SAMPLES)
    log = train(tmp_path / "run", make_loader(str(tmp_path / "seen-data"), mix=True))
    refused = penstock("seen", f"{tmp_path}/run", "7")
    assert (refused.returncode, "pass --loader MODULE:NAME" in refused.stderr) == (2, True)
    (tmp_path / "job.py").write_text(
        "import penstock as ps\n"
        "def make():\n"
        "    dataset = ps.MapDataset.from_prefix('seen-data')\n"
        "    return ps.DataLoader(ps.Mix({'a': dataset, 'b': dataset}), 4, shuffle=True)\n"
    )
    done = penstock("seen", f"{tmp_path}/run", "7", "--loader", "job:make", "--json")
    found, rows = indices(done)
    assert found == log[3:]
    assert {row["source"] for row in rows} == {"a", "b"}


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Return a run whose epochs end with an incomplete batch."""
    folder = tmp_path_factory.mktemp("short")
    train(folder / "run", make_loader(numbered(folder / "data", SAMPLES - 1)))
    return str(folder / "run")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("9",), "step 9 is not committed"),
        (("7", "--since", "5"), "--since must be a committed step before 7, or start, got 5"),
        (("7", "--since", "7"), "--since must be a committed step before 7"),
        (("7", "--loader", "json"), "the function must be MODULE:NAME"),
        (("7", "--loader", "json:loads", "--tail", "drop"), "leave --catalog and --tail out"),
        (("7", "--loader", "math:pi"), "--loader math:pi must be or make a ps.DataLoader, got float"),
        (("7", "--ranks", "3"), "ranks must divide the global batch of 4, got 3"),
        (("7", "--tail", "long"), "tail must be"),
        (("7", "--since", "start"), "pass --tail short, pad or drop"),
    ],
)
def test_a_wrong_use_is_refused_with_advice(penstock, short, words, says):
    done = penstock("seen", short, *words)
    assert (done.returncode in (1, 2), says in done.stderr) == (True, True), done.stderr


def test_a_run_without_a_position_is_named(penstock, tmp_path):
    ps.CheckpointManager(tmp_path).save(1, {"weight": torch.zeros(2)})
    done = penstock("seen", str(tmp_path), "1")
    assert (done.returncode, "save it with loader=" in done.stderr) == (5, True)
