"""cp and mv as values: an outcome for each object; the command's own tests have the rest."""

from __future__ import annotations

from contextlib import closing

import pytest

from penstock.bulk.transfer import How, transfer
from penstock.errors import NotFound, Unusable
from penstock.options import StoreOptions


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "in" / "x").mkdir(parents=True)
    for name in ("a", "x/b"):
        (tmp_path / "in" / name).write_text(name)
    return tmp_path / "in"


def run(urls, dest, **how):
    with closing(transfer([str(each) for each in urls], str(dest), How(**how), StoreOptions())) as found:
        return sorted((each.source.rpartition("/")[2], each.status) for each in found)


def test_an_outcome_for_each_object(tree, tmp_path):
    (tree / "link").symlink_to(tree / "x")
    assert run([tree], tmp_path / "out", recursive=True, dry_run=True) == [
        ("a", "planned"),
        ("b", "planned"),
        ("link", "skipped"),
    ]
    assert not (tmp_path / "out").exists()
    assert run([tree], tmp_path / "out", recursive=True)[0] == ("a", "copied")
    assert run([tree], tmp_path / "out", recursive=True, resume=True)[0] == ("a", "skipped")
    assert run([tree / "a"], tmp_path / "moved", move=True) == [("a", "moved")]
    assert not (tree / "a").exists()


def test_what_is_not_usable_is_an_error_before_anything_is_done(tree, tmp_path):
    with pytest.raises(Unusable, match="-r takes"):
        run([tree], tmp_path / "out")
    with pytest.raises(NotFound):
        run([tree / "nowhere"], tmp_path / "out")


def test_leaving_early_stops(tree, tmp_path):
    found = transfer([str(tree)], str(tmp_path / "out"), How(recursive=True), StoreOptions())
    next(found)
    found.close()
    assert [each.name for each in tmp_path.rglob(".penstock-*")] == []
