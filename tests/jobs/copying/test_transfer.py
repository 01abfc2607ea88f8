"""cp and mv as values: an outcome for each object; the command's own tests have the rest."""

from __future__ import annotations

import sys
from contextlib import closing, contextmanager

import pytest

import penstock as ps
from penstock.errors import NotFound, Unusable
from penstock.jobs.copying import transfer as transfers
from penstock.jobs.copying.transfer import TransferOptions, transfer
from penstock.options import StoreOptions
from tests.emulators import names
from tests.trees import contents


@pytest.fixture
def tree(tmp_path):
    (tmp_path / "in" / "x").mkdir(parents=True)
    for name in ("a", "x/b"):
        (tmp_path / "in" / name).write_text(name)
    return tmp_path / "in"


def run(urls, dest, **how):
    with closing(transfer([str(each) for each in urls], str(dest), TransferOptions(**how), StoreOptions())) as found:
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


def test_dry_run_reports_the_same_obstacles_as_the_real_run(tree, tmp_path):
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "x").write_text("a file")
    (tree / "c").write_text("c")
    found = [run([f"{tree}/"], tmp_path / "out", recursive=True, dry_run=dry_run) for dry_run in (True, False)]
    assert found == [[("a", "failed"), ("b", "failed"), ("c", word)] for word in ("planned", "copied")]
    for dry_run in (True, False):
        assert run([tree / "c"], tmp_path / "out" / "x" / "new", dry_run=dry_run) == [("c", "failed")]


def test_unusable_source_raises_before_any_transfer(tree, tmp_path):
    with pytest.raises(Unusable, match="pass -r for all"):
        run([tree], tmp_path / "out")
    with pytest.raises(NotFound):
        run([tree / "nowhere"], tmp_path / "out")


def test_leaving_early_stops(tree, tmp_path):
    found = transfer([str(tree)], str(tmp_path / "out"), TransferOptions(recursive=True), StoreOptions())
    next(found)
    found.close()
    assert [each.name for each in tmp_path.rglob(".penstock-*")] == []


@pytest.fixture
def many(tmp_path):
    for number in range(1500):
        path = tmp_path / "many" / f"{number % 7}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number * 10)
    return tmp_path / "many"


@pytest.fixture
def counted(monkeypatch):
    """Keep what the bar was told: objects and bytes."""
    told = [0, 0]

    def count(objects, size_bytes):
        told[0] += objects
        told[1] += size_bytes

    @contextmanager
    def bar(*_, **__):
        yield count

    monkeypatch.setattr(transfers, "bar", bar)
    return told


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.parametrize("move", [False, True], ids=["cp", "mv"])
def test_several_processes_copy_each_once_and_the_bar_hears_of_all(many, tmp_path, forks, counted, move):
    (many / "large").write_bytes(bytes(20 << 20))
    (many / "6" / "1").symlink_to("nowhere")
    before = contents(many)
    how = TransferOptions(recursive=True, processes=3, move=move)
    with closing(transfer([f"{many}/"], str(tmp_path / "out"), how, StoreOptions())) as found:
        outcomes = [*found]
    assert len(forks) == 2
    assert sorted(each.status for each in outcomes) == [("moved" if move else "copied")] * 1501 + ["skipped"]
    assert len({each.dest for each in outcomes}) == 1502
    assert contents(tmp_path / "out") == before
    assert contents(many) == ({} if move else before)
    assert counted == [1501, sum(map(len, before.values()))]


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_a_failure_in_another_process_is_one_object_s_and_stops_where_it_is_to(many, tmp_path, forks):
    (tmp_path / "out" / "6" / "1000").mkdir(parents=True)  # in the way of a file
    how = TransferOptions(recursive=True, processes=3)
    with closing(transfer([f"{many}/"], str(tmp_path / "out"), how, StoreOptions())) as found:
        failed = [each for each in found if each.status == "failed"]
    assert [each.source.rpartition("/")[2] for each in failed] == ["1000"]
    assert isinstance(failed[0].error, Unusable)
    how = TransferOptions(recursive=True, processes=3, fail_fast=True)
    with closing(transfer([f"{many}/"], str(tmp_path / "out"), how, StoreOptions())) as found:
        *_, last = found
    assert last.status == "failed"
    assert len(forks) in (2, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
@pytest.mark.parametrize("url", ["memory://several-processes/", "fsspec+memory://several-processes/"])
def test_in_process_store_is_copied_without_forking(url, many, tmp_path, forks):
    how = TransferOptions(recursive=True, processes=3)
    for here, there in ((f"{many}/", url), (url, f"{tmp_path}/back/")):
        with closing(transfer([here], there, how, StoreOptions())) as found:
            assert {each.status for each in found} == {"copied"}
    assert contents(tmp_path / "back") == contents(many)
    assert forks == []


@pytest.mark.parametrize("place", names(), indirect=True)
def test_listed_objects_move_to_and_from_every_store(place, tmp_path):
    """A listing and a HEAD tell one time of change; what was listed is moved, down and up."""
    for name in ("a", "x/b"):
        place.put(f"in/{name}", name.encode())
    store = StoreOptions() if place.store is None else place.store

    def moved(url, dest):
        with closing(transfer([str(url)], str(dest), TransferOptions(recursive=True, move=True), store)) as found:
            return [(each.status, str(each.error)) for each in found]

    for url, dest in ((f"{place.url}in/", f"{tmp_path}/in/"), (f"{tmp_path}/in/", f"{place.url}out/")):
        assert moved(url, dest) == [("moved", "None")] * 2
    assert [each.key.rpartition("out/")[2] for each in ps.list(f"{place.url}out/", store=place.store)] == ["a", "x/b"]
    assert list(ps.list(f"{place.url}in/", store=place.store)) == []
