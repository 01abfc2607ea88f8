"""Trees are compared with trees and catalogs, or read for their digest: nothing that differs passes."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

import penstock as ps
from penstock.errors import Changed, Damaged, NotFound, PenstockError, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.servers.made_up import listing

COUNT = 60


def plant(folder, seed=0):
    draw = random.Random(seed)
    for number in range(COUNT):
        path = Path(folder) / f"{number % 7}" / f"{number:04}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(draw.randbytes(draw.randrange(1, 200)))


@pytest.fixture
def trees(tmp_path):
    for name in ("one", "two"):
        plant(tmp_path / name)
    return tmp_path / "one", tmp_path / "two"


def ways(tmp_path):
    """Return the arguments of a verification at once, and of one in parts."""
    return {}, {"job": f"{tmp_path}/job", "part_objects": 7}


class TestDigest:
    def test_digests_are_those_of_names_and_bytes(self, trees, tmp_path):
        one, two = trees
        at_once, in_parts = (ps.verify(one, **way) for way in ways(tmp_path))
        assert at_once.digest == in_parts.digest == ps.verify(two, processes=2).digest
        assert (at_once.objects, in_parts.parts) == (COUNT, 9)
        assert at_once.bytes == in_parts.bytes == sum(path.stat().st_size for path in one.rglob("*.bin"))

    @pytest.mark.parametrize("change", ["bytes", "name", "swapped", "missing", "more"])
    def test_any_change_changes_it(self, trees, change):
        one, two = trees
        path = two / "0" / "0000.bin"
        if change == "bytes":
            path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
        elif change == "name":
            path.rename(two / "0" / "0000.bim")
        elif change == "swapped":
            other = two / "0" / "0007.bin"
            mine, its = path.read_bytes(), other.read_bytes()
            path.write_bytes(its)
            other.write_bytes(mine)
        elif change == "missing":
            path.unlink()
        else:
            (two / "more").write_bytes(b"")
        assert ps.verify(one).digest != ps.verify(two).digest

    def test_nothing_is_refused(self, tmp_path):
        (tmp_path / "empty").mkdir()
        for way in ways(tmp_path):
            with pytest.raises(NotFound, match="nothing to verify: no object found"):
                ps.verify(tmp_path / "empty", **way)


class TestTrees:
    def test_equal_trees(self, trees, tmp_path):
        one, two = trees
        (two / "more").write_bytes(b"further objects do not matter")
        for way in ways(tmp_path):
            done = ps.verify(two, one, **way)
            assert (done.objects, done.digest) == (COUNT, "")
            assert done.bytes == sum(path.stat().st_size for path in one.rglob("*.bin"))

    def test_every_difference_is_found_and_only_these_are_checked_again(self, trees, tmp_path):
        one, two = trees
        path, gone = two / "3" / "0010.bin", two / "6" / "0013.bin"
        data = path.read_bytes()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        gone.unlink()
        at_once, in_parts = ways(tmp_path)
        with pytest.raises(PenstockError, match="2 objects failed, 58 were verified"):
            ps.verify(two, one, **at_once)
        with pytest.raises(PenstockError, match="2 objects failed in 2 parts"):
            ps.verify(two, one, **in_parts)
        path.write_bytes(data)
        with pytest.raises(NotFound, match="missing: "):
            ps.verify(two, one, **in_parts)
        gone.write_bytes((one / "6" / "0013.bin").read_bytes())
        # A part that was done is not looked at again.
        (two / "0" / "0000.bin").write_bytes(b"other")
        assert ps.verify(two, one, **in_parts).objects == COUNT

    def test_globs_choose(self, trees):
        one, two = trees
        (two / "3" / "0010.bin").unlink()
        assert ps.verify(two, one, exclude="3/*").objects == COUNT - len([*(one / "3").iterdir()])
        with pytest.raises(NotFound):
            ps.verify(two, one, include="3/*")


class TestStores:
    @pytest.fixture
    def server(self):
        with FaultServer.start(Settings()) as running:
            running.make("bucket")
            for number in range(COUNT):
                for tree in ("one", "two"):
                    running.put("bucket", f"{tree}/{number % 7}/{number:04}", b"%d" % number * 50)
            yield running

    def test_trees_and_catalogs(self, server, tmp_path):
        one, two, store = "s3://bucket/one/", "s3://bucket/two/", server.store
        server.fail(FAULTS["503"], when=Match(times=None, rate=0.05))
        file = f"{tmp_path}/one.catalog"
        ps.Catalog.scan(one, store=store).save(file)
        for way in ways(tmp_path):
            assert ps.verify(two, one, store=store, **way).objects == COUNT
        for number, (url, against) in enumerate([(one, file), (two, file), (one, None)]):
            way = {"job": f"s3://bucket/jobs/{number}/", "part_objects": 7}
            for each in ({}, way):
                assert ps.verify(url, against, store=store, **each).objects == COUNT

    def test_an_object_that_was_replaced_is_not_that_of_the_catalog(self, server, tmp_path):
        one, store, file = "s3://bucket/one/", server.store, f"{tmp_path}/one.catalog"
        ps.Catalog.scan(one, store=store).save(file)
        server.put("bucket", "one/0/0000", b"x" * 50)
        with pytest.raises(Changed, match="another version than the catalog"):
            ps.verify(one, file, store=store)
        # Of a copy, versions are not known.
        server.put("bucket", "two/0/0000", b"x" * 50)
        assert ps.verify("s3://bucket/two/", file, store=store).objects == COUNT
        server.put("bucket", "two/0/0000", b"x" * 51)
        with pytest.raises(Changed, match="has 51 bytes, but 50 in the catalog"):
            ps.verify("s3://bucket/two/", file, store=store)
        ps.delete("s3://bucket/two/0/0000", store=store)
        with pytest.raises(NotFound):
            ps.verify("s3://bucket/two/", file, store=store)

    def test_large_objects_are_read_in_pieces(self, server):
        draw = random.Random(0)
        server.put("bucket", "large/x", data := draw.randbytes(40 << 20))
        server.put("bucket", "large/empty", b"")
        done = ps.verify("s3://bucket/large/", store=server.store)
        assert (done.objects, done.bytes) == (2, len(data))
        server.fail(FAULTS["corrupt"], when=Match(verb="get", key="large/x", times=None))
        with pytest.raises(Damaged):
            ps.verify("s3://bucket/large/", store=server.store)

    def test_bytes_that_are_not_those_of_the_checksum(self, server):
        server.fail(FAULTS["corrupt"], when=Match(verb="get", key="one/3/0010", times=None))
        with pytest.raises(Damaged):
            ps.verify("s3://bucket/one/", store=server.store)


class TestRefusals:
    def test_parts_without_records(self, trees):
        for options in ({"part": "1/2"}, {"on": ps.Ray()}):
            with pytest.raises(Unusable, match="pass job="):
                ps.verify(*trees, **options)

    def test_records_in_a_tree(self, trees):
        for folder in trees:
            with pytest.raises(Unusable, match="outside the trees"):
                ps.verify(*trees, job=f"{folder}/job")

    def test_globs_with_a_catalog(self, trees):
        with pytest.raises(Unusable, match="filter trees, not catalogs"):
            ps.verify(trees[0], "x.catalog", include="*")

    def test_a_tree_that_lies_in_the_other(self, trees):
        with pytest.raises(Unusable, match="overlap"):
            ps.verify(trees[0], trees[0] / "3")


MEMORY = """
import resource, sys
import penstock as ps
endpoint, job = sys.argv[1:]
store = ps.S3Options(endpoint=endpoint, anonymous=True, region="us-east-1")
found = ps.verify("s3://bucket/one/", "s3://bucket/two/", store=store, job=job)
print(found.objects, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.parametrize("count", [pytest.param(1_000_000, marks=pytest.mark.slow), 50_000])
def test_memory_does_not_grow_with_the_number_of_keys(tmp_path, count):
    memory = []
    for number in (10_000, count):
        with listing(number) as endpoint:
            words = [sys.executable, "-c", MEMORY, endpoint, f"{tmp_path}/{number}"]
            objects, mib = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
        assert int(objects) == number
        memory.append(int(mib))
    assert memory[1] - memory[0] < 50, memory


def test_a_comparison_with_a_catalog_has_a_bounded_number_of_parts(trees, tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.jobs.syncing.verify.MOST_PARTS", 5)
    ps.Catalog.scan(f"{trees[0]}/").save(tmp_path / "one.catalog")
    found = ps.verify(trees[0], against=tmp_path / "one.catalog", job=f"{tmp_path}/job", part_objects=1)
    assert (found.objects, found.parts) == (COUNT, 5)


@pytest.mark.parametrize("way", [0, 1], ids=["at once", "in parts"])
def test_a_catalog_that_was_saved_anew_is_compared_as_it_is_now(trees, tmp_path, way):
    one, catalog = trees[0], tmp_path / "one.catalog"
    ps.Catalog.scan(f"{one}/").save(catalog)
    how = ways(tmp_path)[way]
    assert ps.verify(one, against=catalog, **how).objects == COUNT
    (one / "0" / "new.bin").write_bytes(b"new")
    ps.Catalog.scan(f"{one}/").save(catalog)
    if how:
        with pytest.raises(Unusable, match="job= has a different job"):
            ps.verify(one, against=catalog, **how)
        how = {"job": f"{tmp_path}/job2", "part_objects": 7}
    assert ps.verify(one, against=catalog, **how).objects == COUNT + 1
    (one / "0" / "new.bin").unlink()
    with pytest.raises(NotFound):
        ps.verify(one, against=catalog)
