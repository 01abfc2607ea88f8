"""The command pack: shards with their catalog, sizes with units, refusals with exit codes."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from tests.jobs.packed import contents, fill, members, shards


@pytest.fixture
def tree(tmp_path):
    return fill(tmp_path / "tree")


def test_directory_is_packed_and_its_catalog_opened(penstock, tree, tmp_path):
    to = tmp_path / "to"
    done = penstock("pack", str(tree), str(to), "--samples", "6")
    assert (done.returncode, done.stdout.split(",")[0]) == (0, f"{to}: 20 samples in 4 shards"), done.stderr
    assert [pair for each in shards(to) for pair in members(each)] == contents(tree)
    again = penstock("pack", f"{tree}/", f"{to}/", "--samples", "6", "--json")
    told = json.loads(again.stdout)
    assert (told["samples"], told["shards"], told["catalog"]) == (20, 4, f"{to}/index.catalog")
    assert ps.Catalog.open(told["catalog"]).digest == told["digest"]


def test_sizes_have_units_and_globs_choose(penstock, tree, tmp_path):
    done = penstock("pack", str(tree), str(tmp_path / "to"), "--bytes", "8KiB", "--include", "**/*.jpg", "--no-verify")
    assert done.returncode == 0, done.stderr
    assert max(each.stat().st_size for each in shards(tmp_path / "to")) <= 8192
    assert all(name.endswith(".jpg") for each in shards(tmp_path / "to") for name, _ in members(each))


def test_rows_of_parquet_are_written(penstock, tree, tmp_path):
    done = penstock("pack", str(tree), str(tmp_path / "to"), "--format", "parquet", "--samples", "6", "--json")
    assert (done.returncode, json.loads(done.stdout)["shards"]) == (0, 4), done.stderr
    assert [pair for each in shards(tmp_path / "to") for pair in members(each)] == contents(tree)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--bytes", "many"), 2, "--bytes"),
        (("--format", "rar"), 2, "format must be"),
        (("--exclude", "**"), 1, "no objects"),
        (("--key", "(("), 2, "key must be"),
    ],
)
def test_invalid_words_are_refused(penstock, tree, tmp_path, words, code, says):
    done = penstock("pack", str(tree), str(tmp_path / "to"), *words)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr
    assert not (tmp_path / "to").exists()


def test_other_shards_are_replaced_only_with_overwrite(penstock, tree, tmp_path):
    assert penstock("pack", str(tree), str(tmp_path / "to")).returncode == 0
    done = penstock("pack", str(tree), str(tmp_path / "to"), "--samples", "5")
    assert done.returncode not in (0, 2), done.stderr
    assert "overwrite" in done.stderr
    assert penstock("pack", str(tree), str(tmp_path / "to"), "--samples", "5", "--overwrite").returncode == 0
    assert len(shards(tmp_path / "to")) == 4
