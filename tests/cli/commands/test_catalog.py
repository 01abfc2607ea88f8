"""The command catalog: identities of a saved catalog, and differences of two."""

from __future__ import annotations

import json

import pytest

import penstock as ps
from tests.data.datasets.transforms import numbered


@pytest.fixture
def saved(tmp_path):
    data, paths = numbered(tmp_path / "data", 4), [str(tmp_path / name) for name in ("a.catalog", "b.catalog")]
    ps.Catalog.scan(data).save(paths[0])
    (tmp_path / "data" / "000").unlink()
    (tmp_path / "data" / "001").write_bytes(b"longer")
    (tmp_path / "data" / "004").write_bytes(b"4")
    ps.Catalog.scan(data).save(paths[1])
    return paths


def test_differences_are_lines_with_a_mark_and_a_sum(penstock, saved):
    done = penstock("catalog", "diff", *saved)
    assert (done.returncode, done.stdout) == (0, "+ 004\n- 000\n~ 001\n")
    assert done.stderr.strip() == "1 added, 1 removed, 1 changed, 2 equal"
    rows = [json.loads(line) for line in penstock("catalog", "diff", *saved, "--json").stdout.splitlines()]
    assert [(row["change"], row["key"][-3:], row["size"]) for row in rows] == [
        ("added", "004", 1),
        ("removed", "000", 1),
        ("changed", "001", 6),
    ]
    brief = penstock("catalog", "diff", "--summary", *saved)
    assert (brief.stdout, brief.stderr) == ("", done.stderr)


def test_a_saved_catalog_is_described_with_both_identities(penstock, saved):
    shown, catalog = penstock("catalog", "show", saved[1]), ps.Catalog.open(saved[1])
    assert "4 entries, 9 bytes" in shown.stdout
    assert f"digest      {catalog.digest}\nfingerprint {catalog.fingerprint}\n" in shown.stdout
    found = json.loads(penstock("catalog", "show", "--json", saved[1]).stdout)
    assert (found["entries"], found["size"], found["fingerprint"]) == (4, 9, catalog.fingerprint)


def test_any_other_file_is_refused_by_name(penstock, saved, tmp_path):
    other = tmp_path / "data" / "002"
    for words in ("diff", saved[0], str(other)), ("show", str(other)):
        done = penstock("catalog", *words)
        assert (done.returncode, "not a catalog" in done.stderr, str(other) in done.stderr) == (5, True, True)
    assert penstock("catalog", "diff", saved[0]).returncode == 2
    assert penstock("catalog", "show", str(tmp_path / "none")).returncode == 1
