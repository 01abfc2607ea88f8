"""One tree becomes equal to another, nothing is done twice, and nothing is deleted that was not meant."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Event

import pytest

import penstock as ps
from penstock.errors import Changed, ConfigError, InvalidURL, NotFound, Transient, Unusable
from penstock.jobs.syncing.mirror import Mirror, SyncOptions
from penstock.jobs.syncing.sync import SyncRun
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from penstock.values import UNKNOWN_SIZE
from tests.children import forked
from tests.emulators import names
from tests.trees import contents, plant

SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "az", "oss": "oss"}
MIB = 1 << 20
NAMES = {"zero": 0, "a b/ü+%&=~?#.txt": 10, "日本/🙂 [x]*.bin": 2000, "x/y/z": 5, "x.y": 7, "x-y": 7, "long": 9 * MIB}
PARTS = ps.WriteOptions(part_bytes=5 * MIB)  # one name has two, and so no MD5 as its ETag


@pytest.fixture(scope="module", params=SCHEMES)
def any_server(request):
    with FaultServer.start(Settings(dialect=request.param)) as running:
        yield running


def fresh(server, request):
    server.bucket = f"b{abs(hash(request.node.name))}"
    server.make(server.bucket)
    server.root = f"{SCHEMES[server.settings.dialect]}://{server.bucket}"
    server.heal()
    return server


@pytest.fixture
def server(any_server, request):
    yield fresh(any_server, request)
    any_server.heal()


@pytest.fixture
def faulty(s3_process, request):
    yield fresh(s3_process, request)
    s3_process.heal()


@pytest.fixture
def tree(tmp_path, seed):
    return plant(tmp_path / "tree", NAMES, seed)


def verbs(server, *names):
    return [each.verb for each in server.seen() if each.verb in (names or ("put", "part", "get", "delete", "copy"))]


def test_a_tree_goes_up_and_down_and_the_second_run_does_nothing(server, tree, tmp_path):
    store = replace(server.store, write=PARTS)
    up = ps.sync(tree, f"{server.root}/up", store=store)
    assert (up.copied, up.unchanged, up.failed) == (len(NAMES), 0, 0)
    assert {key.removeprefix("up/"): data for key, data in server.objects(server.bucket).items()} == contents(tree)
    for source, dest in (
        (tree, f"{server.root}/up/"),
        (f"{server.root}/up", tree),  # the other way, though the files are older
    ):
        before = len(verbs(server))
        again = ps.sync(source, dest, delete=True, store=store)
        assert (again.copied, again.unchanged, again.deleted) == (0, len(NAMES), 0)
        assert len(verbs(server)) == before, "nothing is sent, fetched or deleted twice"
    down = ps.sync(f"{server.root}/up", tmp_path / "down", store=store)
    assert down.copied == len(NAMES)
    assert contents(tmp_path / "down") == contents(tree)
    for source, dest in ((f"{server.root}/up", tmp_path / "down"), (tmp_path / "down", f"{server.root}/up")):
        before = len(verbs(server))
        again = ps.sync(source, dest, store=store)
        assert (again.copied, again.unchanged) == (0, len(NAMES))
        assert len(verbs(server)) == before


def test_between_two_stores_nothing_touches_the_disk(server, faulty, tree, tmp_path, monkeypatch):
    toml = ""
    for name, each in (("one", server), ("two", faulty)):
        options = each.store
        toml += f'[profiles.{name}]\nurl = "{each.root}/"\n[profiles.{name}.options]\n'
        for field in ("endpoint", "region", "access_key", "secret_key", "account", "account_key"):
            if isinstance(getattr(options, field, None), str):
                toml += f'{field} = "{getattr(options, field)}"\n'
    path = tmp_path / "home" / "penstock.toml"
    path.parent.mkdir()
    path.write_text(toml)
    path.chmod(0o600)
    monkeypatch.setenv("PENSTOCK_CONFIG", str(path))  # a project's file names no secret
    monkeypatch.chdir(path.parent)
    ps.sync(tree, "penstock://one/t")
    found = ps.sync("penstock://one/t", "penstock://two/t")
    assert (found.copied, found.failed) == (len(NAMES), 0)
    assert {key[2:]: data for key, data in faulty.objects(faulty.bucket).items()} == contents(tree)
    again = ps.sync("penstock://one/t", "penstock://two/t")
    assert (again.copied, again.unchanged) == (0, len(NAMES))
    assert [each.name for each in path.parent.iterdir()] == ["penstock.toml"]


def test_within_a_bucket_the_server_copies(faulty, tree):
    ps.sync(tree, f"{faulty.root}/a", store=faulty.store)
    before = verbs(faulty, "get").count("get")
    assert ps.sync(f"{faulty.root}/a", f"{faulty.root}/b", store=faulty.store).copied == len(NAMES)
    assert verbs(faulty, "get").count("get") == before
    assert ps.sync(f"{faulty.root}/a", f"{faulty.root}/b", store=faulty.store).unchanged == len(NAMES)


def test_changed_objects_are_copied_and_extra_objects_deleted_last(faulty, tree, tmp_path):
    store, dest = faulty.store, f"{faulty.root}/t"
    ps.sync(tree, dest, store=store)
    for name in ("t/old", "t/x/old", "tt", "outside"):
        faulty.put(faulty.bucket, name, b"old")
    (tree / "x.y").write_bytes(b"changed")  # of the same size
    (tree / "new").write_bytes(b"new")
    (tree / "zero").unlink()
    planned = ps.sync(tree, dest, delete=True, dry_run=True, store=store)
    assert (planned.planned, planned.copied, planned.deleted) == (5, 0, 0)
    assert faulty.objects(faulty.bucket)["t/old"] == b"old"
    count = len(faulty.seen())
    done = ps.sync(tree, dest, delete=True, report=tmp_path / "report", store=store)
    assert (done.copied, done.deleted, done.unchanged) == (2, 3, len(NAMES) - 2)
    stands = faulty.objects(faulty.bucket)
    assert {key[2:]: data for key, data in stands.items() if key.startswith("t/")} == contents(tree)
    assert {key for key in stands if not key.startswith("t/")} == {"tt", "outside"}
    sent = [each.verb for each in faulty.seen()[count:] if each.verb in ("put", "delete")]
    assert sent == ["put"] * 2 + ["delete"] * 3, "deletions come last"
    lines = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    assert sorted((each["status"], each["dest"].removeprefix(dest)) for each in lines) == [
        ("copied", "/new"),
        ("copied", "/x.y"),
        ("deleted", "/old"),
        ("deleted", "/x/old"),
        ("deleted", "/zero"),
    ]


@pytest.mark.parametrize("delete", [False, True])
def test_a_source_with_nothing_in_it_is_refused_unless_it_is_allowed(faulty, tree, tmp_path, delete):
    store, dest = faulty.store, f"{faulty.root}/t"
    ps.sync(tree, dest, store=store)
    before = faulty.objects(faulty.bucket)
    (tmp_path / "empty").mkdir()
    for source, more in (
        (tmp_path / "empty", {}),
        (tmp_path / "mistyped", {}),
        (tmp_path / "mistyped", {"allow_empty": True}),
        (f"{faulty.root}/mistyped", {}),
        ("s3://no-such-bucket-at-all/t", {"allow_empty": True}),
        (tree, {"include": "*.nothing"}),
        (tree, {"exclude": "**"}),
    ):
        with pytest.raises(NotFound):
            ps.sync(source, dest, delete=delete, store=store, **more)
    assert faulty.objects(faulty.bucket) == before
    done = ps.sync(tmp_path / "empty", dest, delete=delete, allow_empty=True, store=store)
    assert done.deleted == (len(NAMES) if delete else 0)
    assert len(faulty.objects(faulty.bucket)) == (0 if delete else len(NAMES))


def test_a_source_listing_that_fails_half_way_deletes_nothing(faulty):
    for number in range(1500):
        faulty.put(faulty.bucket, f"a/{number:04}", b"data")
    faulty.put(faulty.bucket, "b/old", b"old")
    seen = len([each for each in faulty.seen() if each.verb == "list"])
    source = f"{faulty.root}/a"
    options = faulty.store
    from penstock.source import Source

    pages = Source.pages

    def broken(self, prefix, **more):
        for number, page in enumerate(pages(self, prefix, **more)):
            if prefix == "a/" and number == 1:
                raise NotFound("the listing broke off", url=source)
            yield page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Source, "pages", broken)
        with pytest.raises(NotFound, match="broke off"):
            ps.sync(source, f"{faulty.root}/b", delete=True, store=options)
    assert faulty.objects(faulty.bucket)["b/old"] == b"old"
    assert len([each for each in faulty.seen() if each.verb == "list"]) > seen


def test_failed_copy_skips_deletion_and_copies_the_rest(faulty, tree, tmp_path):
    store, dest = faulty.store, f"{faulty.root}/t"
    faulty.put(faulty.bucket, "t/old", b"old")
    faulty.fail(FAULTS["denied"], when=Match(verb="put", key="t/x.y"))
    with pytest.raises(ps.PenstockError, match=r"refus|denied|403") as caught:
        ps.sync(tree, dest, delete=True, store=store, report=tmp_path / "report")
    assert caught.value.url.endswith("x.y")
    stands = faulty.objects(faulty.bucket)
    assert stands["t/old"] == b"old"
    assert len(stands) == len(NAMES)
    lines = {
        each["dest"][len(dest) :]: each for each in map(json.loads, (tmp_path / "report").read_text().splitlines())
    }
    assert (lines["/x.y"]["status"], lines["/old"]["status"]) == ("failed", "skipped")
    assert "repeat the sync" in lines["/old"]["note"]
    assert ps.sync(tree, dest, delete=True, store=store).deleted == 1


def test_destination_object_changed_before_deletion_is_kept_and_raises(faulty, tree, monkeypatch):
    store, dest = faulty.store, f"{faulty.root}/t"
    ps.sync(tree, dest, store=store)
    faulty.put(faulty.bucket, "t/old", b"old")
    from penstock.jobs.syncing import sync as module

    original = module.SyncRun._deletions

    def later(self):
        faulty.put(faulty.bucket, "t/old", b"new")
        return original(self)

    monkeypatch.setattr(module.SyncRun, "_deletions", later)
    with pytest.raises(Changed, match="not deleted"):
        ps.sync(tree, dest, delete=True, store=store)
    assert faulty.objects(faulty.bucket)["t/old"] == b"new"


def test_source_changed_before_copy_raises_and_writes_no_file(faulty, tmp_path, monkeypatch):
    faulty.put(faulty.bucket, "a/k", b"first")
    from penstock.jobs.syncing import sync as module

    original = module.copy

    async def later(job, moved, stop):
        faulty.put(faulty.bucket, "a/k", b"other")
        await original(job, moved, stop)

    monkeypatch.setattr(module, "copy", later)
    with pytest.raises(Changed):
        ps.sync(f"{faulty.root}/a", tmp_path / "out", store=faulty.store)
    assert contents(tmp_path / "out") == {}


def test_globs_leave_both_sides_alone(faulty, tree):
    store, dest = faulty.store, f"{faulty.root}/t"
    for name in ("keep.log", "x/old.bin", "x/old.txt"):
        faulty.put(faulty.bucket, f"t/{name}", b"old")
    done = ps.sync(tree, dest, include=["x*", "x/**"], exclude="**/*.txt", delete=True, store=store)
    assert (done.copied, done.deleted) == (3, 1)
    assert set(faulty.objects(faulty.bucket)) == {
        *(f"t/{name}" for name in ("x/y/z", "x.y", "x-y")),
        *("t/keep.log", "t/x/old.txt"),
    }


def test_an_excluded_folder_written_with_a_slash_at_its_end_is_not_deleted(tree, tmp_path, seed):
    plant(tmp_path / "out", {"keep/file": 5}, seed)
    with pytest.raises(ConfigError, match=r"write 'keep/\*\*' for all objects below"):
        ps.sync(tree, tmp_path / "out", exclude="keep/", delete=True)
    assert set(contents(tmp_path / "out")) == {"keep/file"}


def test_clocks_that_differ_by_minutes_hide_no_change_and_cost_nothing_twice(faulty, tree):
    store, dest = replace(faulty.store, write=PARTS), f"{faulty.root}/t"
    ps.sync(tree, dest, store=store)
    for skew_s in (-800, 800):  # of this machine's files against the store
        stamp = time.time() + skew_s
        (tree / "x.y").write_bytes(random.randbytes(7))
        for path in (each for each in tree.rglob("*") if each.is_file()):
            os.utime(path, (stamp, stamp))
        count = len(verbs(faulty))
        done = ps.sync(tree, dest, store=store)
        assert "x.y" in {each.key[2:] for each in faulty.seen() if each.verb == "put"}
        assert faulty.objects(faulty.bucket)["t/x.y"] == (tree / "x.y").read_bytes()
        # What was uploaded in parts has no MD5, and a new time: it goes again.
        assert done.copied == 2
        assert done.unchanged == len(NAMES) - 2
        assert len(verbs(faulty)) > count


def test_by_content_a_newer_copy_of_other_bytes_is_replaced(faulty, tree):
    store, dest = faulty.store, f"{faulty.root}/t"
    ps.sync(tree, dest, store=store)
    old = time.time() - 10_000
    os.utime(tree / "x.y", (old, old))
    faulty.put(faulty.bucket, "t/x.y", b"damaged")
    assert ps.sync(tree, dest, store=store).copied == 0, "newer, and of the same size: the rule of times"
    assert ps.sync(tree, dest, checksum=True, exclude="long", store=store).copied == 1
    assert faulty.objects(faulty.bucket)["t/x.y"] == (tree / "x.y").read_bytes()


def test_checksum_sync_compares_content_and_copies_only_differences(server, tree, tmp_path):
    store, other = replace(server.store, write=PARTS), replace(server.store, write=ps.WriteOptions())
    dest = f"{server.root}/t"
    ps.sync(tree, dest, store=store)
    for path in (each for each in tree.rglob("*") if each.is_file()):
        os.utime(path, (1, 1))  # no time tells
    for source, target in ((tree, dest), (dest, tree), (tree, dest)):
        for options in (store, other):
            again = ps.sync(source, target, checksum=True, store=options)
            assert (again.copied, again.unchanged) == (0, len(NAMES))
    down = ps.sync(dest, tmp_path / "down", checksum=True, store=other)
    assert down.copied == len(NAMES)
    data = bytearray((tree / "long").read_bytes())
    data[-1] ^= 1
    (tree / "long").write_bytes(data)
    changed = ps.sync(tree, dest, checksum=True, store=store)
    assert (changed.copied, changed.unchanged) == (1, len(NAMES) - 1)
    assert server.objects(server.bucket)["t/long"] == bytes(data)


@pytest.mark.parametrize("place", names(), indirect=True)
def test_every_store_is_made_equal_in_both_directions_and_once(place, tree, tmp_path):
    top = place.url
    for key in ("up/old", "outside"):
        place.put(key, b"old")
    up = ps.sync(tree, f"{top}up", delete=True, store=place.store)
    assert (up.copied, up.deleted, up.failed) == (len(NAMES), 1, 0)
    stands = place.objects()
    assert stands.pop("outside") == b"old"
    assert {key.removeprefix("up/"): data for key, data in stands.items()} == contents(tree)
    across = ps.sync(f"{top}up", f"{top}across", store=place.store)
    assert across.copied == len(NAMES)
    down = ps.sync(f"{top}across", tmp_path / "down", store=place.store)
    assert down.copied == len(NAMES)
    assert contents(tmp_path / "down") == contents(tree)
    for source, dest in ((tree, f"{top}up"), (f"{top}up", tree), (f"{top}across", tmp_path / "down")):
        for checksum in (False, True):
            again = ps.sync(source, dest, delete=True, checksum=checksum, store=place.store)
            assert (again.copied, again.deleted, again.unchanged) == (0, 0, len(NAMES))


def test_file_directory_conflict_raises_without_delete_and_is_replaced_with_it(tree, tmp_path):
    out = tmp_path / "out"
    ps.sync(tree, out)
    (tree / "x.y").unlink()
    (tree / "x.y" / "deep").mkdir(parents=True)
    (tree / "x.y" / "deep" / "file").write_bytes(b"new")
    (tree / "x" / "y" / "z").unlink()
    (tree / "x" / "y").rmdir()
    (tree / "x" / "y").write_bytes(b"was a directory")
    (out / "x" / "y" / "empty" / "too").mkdir(parents=True)
    before = contents(out)
    with pytest.raises(Unusable, match=r"in a directory's place: .*--delete|in the place of this file: .*--delete"):
        ps.sync(tree, out)
    assert contents(out) == before
    planned = ps.sync(tree, out, delete=True, dry_run=True)
    assert (planned.planned, contents(out)) == (4, before)
    done = ps.sync(tree, out, delete=True, report=tmp_path / "report")
    assert (done.copied, done.deleted, done.failed) == (2, 2, 0)
    assert contents(out) == contents(tree)
    lines = [json.loads(line)["status"] for line in (tmp_path / "report").read_text().splitlines()]
    assert lines == ["deleted", "deleted", "copied", "copied"]
    assert ps.sync(tree, out, delete=True).unchanged == len(contents(tree))


def test_directory_with_excluded_files_is_kept_and_raises(tree, tmp_path):
    out = tmp_path / "out"
    (out / "x.y" / "kept").mkdir(parents=True)
    (out / "x.y" / "kept" / "a.log").write_bytes(b"kept")
    (out / "x.y" / "old").write_bytes(b"old")
    with pytest.raises(Unusable, match="in the place of this file: remove it: nothing is deleted that is excluded"):
        ps.sync(tree, out, delete=True, exclude="**/*.log")
    assert contents(out) == {
        **{key: data for key, data in contents(tree).items() if key != "x.y"},
        "x.y/kept/a.log": b"kept",
    }


def test_links_are_treated_as_by_cp(tree, tmp_path):
    (tree / "to-file").symlink_to(tree / "x.y")
    (tree / "to-folder").symlink_to(tree / "x")
    (tree / "to-nothing").symlink_to(tree / "nowhere")
    done = ps.sync(tree, tmp_path / "out", report=tmp_path / "report")
    assert (done.copied, done.skipped) == (len(NAMES) + 1, 2)
    assert not (tmp_path / "out" / "to-file").is_symlink()
    notes = [json.loads(line).get("note") for line in (tmp_path / "report").read_text().splitlines()]
    assert {"a link to a directory", "a link to no file"} <= set(notes)
    again = ps.sync(tree, tmp_path / "out", delete=True)
    assert (again.copied, again.deleted, again.unchanged) == (0, 0, len(NAMES) + 1)


@pytest.mark.parametrize(
    ("link", "message"),
    [("x", "write through this link"), ("x.y", "nothing is deleted that is excluded or a link")],
    ids=["in place of a directory", "in place of a file"],
)
def test_nothing_is_written_replaced_or_deleted_through_a_link_below_the_destination(tree, tmp_path, link, message):
    (tmp_path / "elsewhere" / "y" / "z" / "empty").mkdir(parents=True)
    (tmp_path / "elsewhere" / "old").write_text("kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unusable, match=message):
        ps.sync(tree, tmp_path / "out", delete=True)
    assert contents(tmp_path / "elsewhere") == {"old": b"kept"}
    assert (tmp_path / "elsewhere" / "y" / "z" / "empty").is_dir()


def test_names_that_files_cannot_have_are_failures_and_the_rest_comes(faulty, tmp_path):
    names = ["good", "a//b", "../up", "./here", "a/../b", "n" * 300, "both", "both/below", "marker/", "nul/x"]
    for name in names:
        faulty.put(faulty.bucket, f"t/{name}", b"" if name.endswith("/") else b"data")
    with pytest.raises(Unusable, match="6 objects failed, 3 were copied") as caught:
        ps.sync(f"{faulty.root}/t", tmp_path / "out", store=faulty.store, report=tmp_path / "report")
    assert "no file can be called that" in str(caught.value) or "a file and a directory" in str(caught.value)
    assert contents(tmp_path / "out") == {"good": b"data", "both": b"data", "nul/x": b"data"}
    assert not (tmp_path / "up").exists()


def test_keys_with_double_slashes_and_markers_go_between_stores(faulty):
    names = ["a//b", "/lead", "dir/", "dir/x", "./k", "a/../b", "trail//"]
    for name in names:
        faulty.put(faulty.bucket, f"t/{name}", name.encode() if not name.endswith("/") else b"")
    done = ps.sync(f"{faulty.root}/t/", f"{faulty.root}/u", store=faulty.store)
    assert done.copied == len(names)
    stands = faulty.objects(faulty.bucket)
    assert {key[2:] for key in stands if key.startswith("u/")} == set(names)
    assert ps.sync(f"{faulty.root}/t", f"{faulty.root}/u/", store=faulty.store, delete=True).unchanged == len(names)


def test_markers_of_folders_survive_files_that_have_none(faulty, tree):
    for name in ("t/", "t/x/", "t/other/"):
        faulty.put(faulty.bucket, name, b"")
    ps.sync(tree, f"{faulty.root}/t", delete=True, store=faulty.store)
    assert {"t/", "t/x/", "t/other/"} <= set(faulty.objects(faulty.bucket))


class TestRefusals:
    def test_local_source_and_destination_inside_each_other_are_refused(self, tree, tmp_path, monkeypatch):
        (tmp_path / "alias").symlink_to(tree)
        monkeypatch.chdir(tree)
        for source, dest in (
            (tree, tree),
            (tree, tree / "x"),
            (tree / "x", tree),
            (tree, tmp_path / "alias" / "new"),
            (".", "x/new"),
            (tmp_path / "alias", tree / "new"),
        ):
            with pytest.raises(Unusable, match="overlap"):
                ps.sync(source, dest)

    def test_nested_prefixes_are_refused_under_any_url_form(self, faulty, tmp_path, monkeypatch):
        faulty.put(faulty.bucket, "a/b/k", b"data")
        for name, value in faulty.environment.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "penstock.toml").write_text(f'[profiles.p]\nurl = "{faulty.root}/a/"\n')
        monkeypatch.chdir(tmp_path)
        for source, dest in (
            (faulty.root, f"{faulty.root}/a"),
            (f"{faulty.root}/a/b", f"{faulty.root}/a"),
            (f"{faulty.root}/a", f"{faulty.root}/a/"),
            ("penstock://p/b", f"{faulty.root}/a"),
            (f"{faulty.root}/a", "penstock://p/b"),
        ):
            with pytest.raises(Unusable, match=r"overlap|write both in the same form"):
                ps.sync(source, dest)
        assert ps.sync(f"{faulty.root}/a", f"{faulty.root}/ab").copied == 1

    def test_a_single_object_or_file(self, faulty, tmp_path):
        faulty.put(faulty.bucket, "a", b"data")
        (tmp_path / "file").write_text("x")
        for source in (f"{faulty.root}/a", tmp_path / "file"):
            with pytest.raises(Unusable, match="use penstock cp"):
                ps.sync(source, tmp_path / "out", store=faulty.store)
        with pytest.raises(Unusable, match="the destination is a file"):
            ps.sync(tmp_path, tmp_path.parent / tmp_path.name / ".." / tmp_path.name / "file")

    def test_deletion_where_it_is_never_meant(self, faulty, tree, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path / "home" / "me"))
        (tmp_path / "home" / "me").mkdir(parents=True)
        (tmp_path / "work").mkdir()
        monkeypatch.chdir(tmp_path / "work")
        for dest in (tmp_path / "home" / "me", tmp_path / "home", tmp_path / "work", "."):
            with pytest.raises(InvalidURL, match="directory"):
                ps.sync(tree, dest, delete=True)
        with pytest.raises(Unusable, match="--whole-bucket"):
            ps.sync(tree, faulty.root, delete=True, store=faulty.store)
        faulty.put(faulty.bucket, "old", b"old")
        planned = ps.sync(tree, faulty.root, delete=True, dry_run=True, store=faulty.store)
        assert (planned.copied, planned.deleted) == (0, 0)
        done = ps.sync(tree, faulty.root, delete=True, whole_bucket=True, store=faulty.store)
        assert (done.copied, done.deleted) == (len(NAMES), 1)

    def test_prefix_profile_allows_delete_and_bucket_profile_requires_flag(self, tree, tmp_path, monkeypatch):
        (tmp_path / "home").mkdir()
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        text = """
            [profiles.prefix]
            url = "memory://synced/base/"
            [profiles.bucket]
            url = "memory://synced"
            [profiles.disk]
            url = "disk"
            [profiles.here]
            url = "."
            [profiles.root]
            url = "/"
        """
        (tmp_path / "penstock.toml").write_text(text)
        monkeypatch.setenv("PENSTOCK_CONFIG", str(tmp_path / "penstock.toml"))
        monkeypatch.chdir(tmp_path)
        for url in ("memory://synced/base/old", "memory://synced/beside", f"{tmp_path}/disk/old"):
            with ps.open(url, "wb") as file:
                file.write(b"old")
        for profile in ("prefix", "disk"):
            done = ps.sync(tree, f"penstock://{profile}/", delete=True)
            assert (done.copied, done.deleted) == (len(NAMES), 1)
        assert ps.open("memory://synced/beside").read() == b"old"
        with pytest.raises(Unusable, match="--whole-bucket"):
            ps.sync(tree, "penstock://bucket/", delete=True)
        for profile in ("here", "root"):
            with pytest.raises(InvalidURL, match="directory"):
                ps.sync("memory://synced/base/", f"penstock://{profile}/", delete=True, whole_bucket=True)


def test_objects_of_unknown_size_are_asked_for_theirs(served, tmp_path):
    (served.folder / "a").write_bytes(b"12345")
    assert {each.size for each in ps.list(served.roots["index"])} <= {5, UNKNOWN_SIZE}
    assert ps.sync(served.roots["index"], tmp_path / "out").copied == 1
    assert contents(tmp_path / "out") == {"a": b"12345"}


@pytest.mark.parametrize("again", [True, False])
def test_a_directory_that_is_renamed_while_it_is_listed_deletes_nothing(again, tmp_path, monkeypatch):
    source, out = tmp_path / "source", tmp_path / "out"
    source.mkdir()
    for number in range(1100):  # more than a page
        (source / f"{number:04}").touch()
    ps.sync(source, out)
    listed = Mirror.listed

    def renamed(mirror, store, prefix):
        if prefix == mirror.base:
            source.rename(tmp_path / "renamed")
            if again:
                source.mkdir()
        return listed(mirror, store, prefix)

    monkeypatch.setattr(Mirror, "listed", renamed)
    with pytest.raises(Changed, match="no longer the directory"):
        ps.sync(source, out, delete=True, report=tmp_path / "report")
    assert len(contents(out)) == 1100
    lines = [json.loads(line) for line in (tmp_path / "report").read_text().splitlines()]
    assert {line["status"] for line in lines} == {"failed", "skipped"}


@pytest.mark.parametrize("place", [None, 3])
def test_sync_argument_of_invalid_type_raises_invalid_url(place, tmp_path):
    for source, dest in ((place, tmp_path), (tmp_path, place)):
        with pytest.raises(InvalidURL, match="a URL must be text or a path"):
            ps.sync(source, dest)


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_sync_processes_copy_and_report_each_difference_once(faulty, tmp_path, forks):
    for number in range(1200):
        path = tmp_path / "in" / f"{number % 5}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"%d" % number * 10)
    for url, back in ((f"{faulty.root}/x", False), (str(tmp_path / "out"), True)):
        here = f"{faulty.root}/x" if back else str(tmp_path / "in")
        run = SyncRun(here, url, SyncOptions(delete=True), faulty.store)
        outcomes = [*run.outcomes(processes=3)]
        assert {each.status for each in outcomes} == {"copied"}
        assert len({each.dest for each in outcomes}) == len(outcomes) == 1200
    assert contents(tmp_path / "out") == contents(tmp_path / "in")
    assert len(forks) == 4
    run = SyncRun(f"{faulty.root}/x", str(tmp_path / "out"), SyncOptions(delete=True), faulty.store)
    assert [*run.outcomes(processes=3)] == []
    assert run.unchanged == 1200
    assert len(forks) == 4, "nothing to do is done by one"


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_a_killed_process_leaves_the_rest_to_the_next_sync_and_deletes_nothing(faulty, tmp_path, forks):
    """Whoever was killed: a worker here, with what it was at; ``tests/cli`` kills the command itself."""
    for number in range(1200):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number:04}").write_bytes(b"%d" % number * 10)
    faulty.put(faulty.bucket, "x/too-much", b"stays until all is copied")
    run = SyncRun(str(tmp_path / "in"), f"{faulty.root}/x", SyncOptions(delete=True), faulty.store)
    outcomes = []
    for outcome in run.outcomes(processes=2):
        outcomes.append(outcome)
        if len(outcomes) in (500, 700):  # stopped first, so that it dies of what it was at
            os.kill(forks[0], signal.SIGSTOP if len(outcomes) == 500 else signal.SIGKILL)
    failed = [each for each in outcomes if each.status == "failed"]
    assert failed
    assert {type(each.error) for each in failed} == {Transient}
    assert [each.status for each in outcomes if each.dest.endswith("/too-much")] == ["skipped"]
    assert faulty.objects(faulty.bucket)["x/too-much"] == b"stays until all is copied"
    run = SyncRun(str(tmp_path / "in"), f"{faulty.root}/x", SyncOptions(delete=True), faulty.store)
    again = [*run.outcomes(processes=2)]
    assert {each.status for each in again} == {"copied", "deleted"}
    assert len(again) <= len(failed) + 1, "what was told to be copied is not copied again"
    stored = {key.removeprefix("x/"): data for key, data in faulty.objects(faulty.bucket).items()}
    assert stored == contents(tmp_path / "in")


def _aside(folder, number, age_s):
    """Write a file as a killed writer leaves it, so old by the clock of its file system."""
    path = folder / f".penstock-{number:032x}"
    path.write_bytes(b"half")
    now = path.stat().st_mtime
    os.utime(path, (now - age_s, now - age_s))
    return path


def test_only_stale_temporary_files_of_dead_writers_are_removed(tree, tmp_path, monkeypatch):
    ps.sync(tree, tmp_path / "out")
    day_s = 24 * 3600
    old = [_aside(tmp_path / "out" / folder, 1, day_s + 60) for folder in (".", "x")]
    young = _aside(tmp_path / "out", 2, day_s - 60)
    beside = _aside(tmp_path, 3, 9 * day_s)
    notes = tmp_path / "out" / ".penstock-notes"
    notes.touch()
    os.utime(notes, (0, 0))
    with ps.open(tmp_path / "out" / "later", "wb", store=ps.StoreOptions(write=PARTS)) as writer:
        writer.write(bytes(6 * MIB))
        (begun,) = set((tmp_path / "out").glob(".penstock-????????????????????????????????")) - {old[0], young}
        os.utime(begun, (0, 0))
        ps.sync(tree, tmp_path / "out", dry_run=True)
        assert all(path.exists() for path in old)
        monkeypatch.setattr(time, "time", lambda: 0.0)  # a clock of this machine that is wrong decides nothing
        ps.sync(tree, tmp_path / "out")
        assert not any(path.exists() for path in old)
        assert all(path.exists() for path in (young, beside, notes, begun))
    assert (tmp_path / "out" / "later").stat().st_size == 6 * MIB


def test_a_writer_that_was_killed_holds_its_file_no_longer(tree, tmp_path):
    ps.sync(tree, tmp_path / "out")
    program = (
        "import os, signal, sys, penstock as ps\n"
        "writer = ps.open(sys.argv[1], 'wb', store=ps.StoreOptions(write=ps.WriteOptions(part_bytes=5 << 20)))\n"
        "writer.write(bytes(6 << 20))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path / "out" / "new")], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "out").glob(".penstock-*")
    ps.sync(tree, tmp_path / "out")
    assert left.exists()  # not a day old
    os.utime(left, (0, 0))
    ps.sync(tree, tmp_path / "out")
    assert not left.exists()


def test_dry_run_reports_the_same_conflicts_as_the_real_run(tree, tmp_path):
    (tmp_path / "out" / "zero").mkdir(parents=True)
    (tmp_path / "out" / "x").write_text("a file")
    told = []
    for dry_run in (True, False):
        run = SyncRun(tree, tmp_path / "out", SyncOptions(dry_run=dry_run), ps.StoreOptions())
        found = list(run.outcomes())
        told.append(sorted((each.dest, str(each.error)) for each in found if each.error is not None))
        assert {each.status for each in found} == {"planned" if dry_run else "copied", "failed"}
    assert told[0] == told[1]
    assert [dest.removeprefix(f"file://{tmp_path}/out/") for dest, _ in told[0]] == ["x/y/z", "zero"]
    planned = SyncRun(tree, tmp_path / "out", SyncOptions(dry_run=True, delete=True), ps.StoreOptions()).outcomes()
    assert {each.status for each in planned} == {"planned"}
    assert (tmp_path / "out" / "zero").is_dir()


def test_two_syncs_at_once_into_one_place_leave_every_file_whole(tree, tmp_path, seed):
    """Both copy the same objects, or one the successors of the other's: each file is one version, wholly."""
    draw = random.Random(seed)
    other = plant(tmp_path / "other", {f"f{number}": draw.randrange(100_000) for number in range(60)} | NAMES, seed + 1)
    for number in range(60):
        (tree / f"f{number}").write_bytes(draw.randbytes(100_000))
    versions = contents(tree), contents(other)
    with ThreadPoolExecutor() as pool:
        runs = [pool.submit(ps.sync, each, tmp_path / "out") for each in (tree, other, tree, other)]
        errors = [each.exception() for each in runs]
    assert all(error is None or isinstance(error, ps.errors.PenstockError) for error in errors), errors
    assert all(data in (versions[0][name], versions[1][name]) for name, data in contents(tmp_path / "out").items())
    assert set(contents(tmp_path / "out")) == set(versions[0])
    ps.sync(tree, tmp_path / "out", checksum=True, delete=True)
    assert contents(tmp_path / "out") == versions[0]


def test_a_source_that_changes_all_the_while_gives_no_mixture(tmp_path, seed):
    """Each version of a file is one letter: what arrives is a single letter, and a sync afterwards has the last."""
    (tmp_path / "in").mkdir()
    paths = [tmp_path / "in" / f"{number}" for number in range(12)]
    for path in paths:
        path.write_bytes(b"a" * 3 * MIB)
    done, draw = Event(), random.Random(seed)

    def rewrite():
        while not done.is_set():
            data = draw.choice(b"bcdefgh").to_bytes() * draw.choice((MIB, 3 * MIB, 9 * MIB))
            path = draw.choice(paths)
            path.with_suffix(".new").write_bytes(data)
            path.with_suffix(".new").replace(path)

    with ThreadPoolExecutor() as pool:
        rewriting = pool.submit(rewrite)
        try:
            for _ in range(6):
                with suppress(Changed, NotFound):
                    ps.sync(tmp_path / "in", tmp_path / "out", exclude="*.new")
                for data in contents(tmp_path / "out").values():
                    assert len(set(data)) == 1
                    assert len(data) in (MIB, 3 * MIB, 9 * MIB)
        finally:
            done.set()
        rewriting.result()
    ps.sync(tmp_path / "in", tmp_path / "out", checksum=True, exclude="*.new")
    assert contents(tmp_path / "out") == {path.name: path.read_bytes() for path in paths}


def test_forks_and_threads_beside_a_sync_change_nothing_of_it(faulty, tree):
    """CPython cannot fork while another thread imports a module that the child needs: all are imported before."""
    ps.sync(tree, f"{faulty.root}/first", store=faulty.store)
    statuses = []
    with ThreadPoolExecutor() as pool:
        runs = [
            pool.submit(ps.sync, tree, f"{faulty.root}/{n}", store=replace(faulty.store, write=PARTS)) for n in "ab"
        ]
        while not all(run.done() for run in runs) or not statuses:
            with forked(lambda: list(ps.list(faulty.root, store=faulty.store))) as ended:
                statuses.append(ended())
        assert {run.result().copied for run in runs} == {len(NAMES)}
    assert set(statuses) == {0}
    whole = contents(tree)
    folders = ("a", "b", "first")
    assert faulty.objects(faulty.bucket) == {f"{n}/{name}": data for n in folders for name, data in whole.items()}


@pytest.mark.parametrize("jump_s", [-10 * 365 * 86400, -3600, 3600, 10 * 365 * 86400])
def test_a_clock_that_jumps_hides_no_change(faulty, tree, tmp_path, monkeypatch, jump_s):
    real = time.time
    ps.sync(tree, f"{faulty.root}/up", store=faulty.store)
    ps.sync(tree, tmp_path / "out")
    # As of a machine whose clock is set: this process's time, and the times of what is written from now on.
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    (tree / "x.y").write_bytes(b"another")
    os.utime(tree / "x.y", (real() + jump_s,) * 2)
    for dest, store in ((f"{faulty.root}/up", faulty.store), (tmp_path / "out", None)):
        found = ps.sync(tree, dest, store=store, checksum=True)
        assert (found.copied, found.failed) == (1, 0)
        assert ps.sync(tree, dest, store=store).copied == 0
    assert contents(tmp_path / "out") == contents(tree)
    assert faulty.objects(faulty.bucket)["up/x.y"] == b"another"
