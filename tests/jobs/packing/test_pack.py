"""Packed shards are whole, deterministic and read back; a pack that was killed goes on, and replaces nothing else."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

import penstock as ps
from penstock.errors import AlreadyExists, Changed, ChecksumMismatch, Damaged, PenstockError, Unusable
from penstock.jobs.packing import pack as module
from penstock.testing.faults import FAULTS, Match
from penstock.values import Span
from tests.children import PEAK_KIB
from tests.jobs.packed import EVERY, KINDS, contents, fill, members, shards


@pytest.fixture
def tree(tmp_path):
    return fill(tmp_path / "tree")


@pytest.mark.parametrize("kind", KINDS)
def test_standard_library_and_from_shards_read_what_was_packed(tree, tmp_path, kind):
    catalog = ps.pack(tree, tmp_path / "to", format=kind, samples=6)
    found = shards(tmp_path / "to")
    assert [each.name for each in found] == [f"shard-{number:06}.{kind}" for number in range(4)]
    assert [pair for each in found for pair in members(each)] == contents(tree)
    for same in (ps.Catalog.from_shards(f"{tmp_path}/to/"), ps.Catalog.open(tmp_path / "to" / "index.catalog")):
        assert [*same] == [*catalog]
        assert (same.digest, same.format, same.base) == (catalog.digest, catalog.format, catalog.base)
    samples = [*ps.MapDataset(catalog)]
    assert [(each.key, each.fields) for each in samples[:2]] == [("c0/000", ("cls", "jpg")), ("c0/003", ("cls", "jpg"))]
    assert {each.name for each in (tmp_path / "to").iterdir()} - {each.name for each in found} == {
        "index.catalog",
        "pack.json",
    }


def test_the_same_source_gives_the_same_bytes(tree, tmp_path):
    other = fill(tmp_path / "other")
    for path in other.rglob("*"):
        os.utime(path, (1, 1))
    one, two = (ps.pack(each, tmp_path / f"to-{each.name}", bytes=20_000) for each in (tree, other))
    assert one.digest == two.digest
    pairs = zip(shards(tmp_path / "to-tree"), shards(tmp_path / "to-other"), strict=True)
    assert all(first.read_bytes() == second.read_bytes() for first, second in pairs)


def test_groups_are_packed_with_all_their_objects(tree, tmp_path):
    (tree / "c0" / "003.jpg").unlink()
    grouped = ps.Catalog.scan(f"{tree}/", group="stem", missing="none")
    ps.pack(grouped, tmp_path / "to")
    packed = [pair for each in shards(tmp_path / "to") for pair in members(each)]
    assert packed == contents(tree)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_bound_the_size_of_a_shard(tree, tmp_path, kind):
    most = {"tar": 8_000, "zip": 1_500}[kind]
    ps.pack(tree, tmp_path / "to", format=kind, bytes=most)
    sizes = [each.stat().st_size for each in shards(tmp_path / "to")]
    assert len(sizes) > 2
    assert max(sizes) <= most
    # A sample that is larger has a shard for itself.
    ps.pack(tree, tmp_path / "each", format=kind, bytes=1)
    assert len(shards(tmp_path / "each")) == 20


def test_manifest_names_shards_with_their_digests(tree, tmp_path):
    ps.pack(tree, tmp_path / "to", samples=8)
    told = json.loads((tmp_path / "to" / "pack.json").read_text())
    assert [(each["name"], each["samples"]) for each in told["shards"]] == [
        ("shard-000000.tar", 8),
        ("shard-000001.tar", 8),
        ("shard-000002.tar", 4),
    ]
    sums = subprocess.run(["sha256sum", *shards(tmp_path / "to")], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in sums.splitlines()] == [each["sha256"] for each in told["shards"]]


def test_long_objects_pass_in_pieces(tmp_path, monkeypatch):
    (tmp_path / "tree").mkdir()
    data = os.urandom(20 << 20) + b"x"
    (tmp_path / "tree" / "long.bin").write_bytes(data)
    (tmp_path / "tree" / "short.bin").write_bytes(b"short")
    monkeypatch.setattr(module, "_TOGETHER_BYTES", 1 << 20)
    for kind in EVERY:
        ps.pack(tmp_path / "tree", tmp_path / kind, format=kind)
        assert members(shards(tmp_path / kind)[0]) == [("long.bin", data), ("short.bin", b"short")]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"samples": 0}, "samples must be 1 or more"),
        ({"bytes": 1.5}, "whole number"),
        ({"format": "rar"}, "format must be"),
        ({"format": "jsonl"}, "format must be"),
        ({"columns": {"jpg": "jpeg"}}, "columns= is for format=\"mds\", got it with format='tar'"),
        ({"key": "(("}, "key must be"),
    ],
)
def test_invalid_arguments(tree, tmp_path, how, says):
    with pytest.raises(Unusable, match=says):
        ps.pack(tree, tmp_path / "to", **how)


def test_the_same_key_twice_in_one_shard_is_refused(tree, tmp_path):
    packed = ps.pack(tree, tmp_path / "to")
    with pytest.raises(Unusable, match="two samples of one shard have the key 'c0/000'"):
        ps.pack(packed[[0, 1, 0]], tmp_path / "twice")
    assert [each.name for each in (tmp_path / "twice").iterdir()] == [] if (tmp_path / "twice").exists() else True
    assert len(ps.pack(packed[[0, 1, 0]], tmp_path / "apart", samples=2)) == 3


# -- what is there already


def test_finished_pack_is_not_written_again(tree, tmp_path):
    first = ps.pack(tree, tmp_path / "to", samples=6)
    before = {each: each.stat().st_mtime_ns for each in (tmp_path / "to").iterdir()}
    second = ps.pack(tree, tmp_path / "to", samples=6)
    assert [*second] == [*first]
    assert {each: each.stat().st_mtime_ns for each in (tmp_path / "to").iterdir()} == before


def test_other_content_is_refused_unless_it_may_be_replaced(tree, tmp_path):
    to = tmp_path / "to"
    ps.pack(tree, to, samples=3)
    before = {each.name: each.read_bytes() for each in to.iterdir()}
    (tree / "c0" / "000.jpg").write_bytes(b"other")
    for source, how in ((tree, {"samples": 3}), (tree, {"samples": 4}), (tree / "c1", {"samples": 3})):
        with pytest.raises(AlreadyExists, match="overwrite=True"):
            ps.pack(source, to, **how)
    assert {each.name: each.read_bytes() for each in to.iterdir()} == before
    (to / "README.md").write_text("mine")
    packed = ps.pack(tree, to, samples=10, overwrite=True)
    assert [pair for each in shards(to) for pair in members(each)] == contents(tree)
    assert len(shards(to)) == 2, "shards of the earlier pack are gone"
    assert (to / "README.md").read_text() == "mine"
    assert ps.Catalog.from_shards(f"{to}/").digest == packed.digest


@pytest.mark.parametrize("name", ["shard-000000.tar", "shard-000007.tar", "shard-000000.zip", "index.catalog"])
def test_foreign_object_with_a_name_of_ours_is_refused_before_anything_is_written(tree, tmp_path, name):
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / name).write_bytes(b"mine")
    with pytest.raises(AlreadyExists):
        ps.pack(tree, tmp_path / "to")
    assert [each.name for each in (tmp_path / "to").iterdir()] == [name]
    assert (tmp_path / "to" / name).read_bytes() == b"mine"
    ps.pack(tree, tmp_path / "to", overwrite=True)
    assert sorted(each.name for each in (tmp_path / "to").iterdir()) == [
        "index.catalog",
        "pack.json",
        "shard-000000.tar",
    ]


def test_shard_that_is_missing_from_a_finished_pack_is_not_made_up(tree, tmp_path):
    ps.pack(tree, tmp_path / "to", samples=6)
    shards(tmp_path / "to")[1].unlink()
    with pytest.raises(AlreadyExists):
        ps.pack(tree, tmp_path / "to", samples=6)
    assert len(ps.pack(tree, tmp_path / "to", samples=6, overwrite=True)) == 20


# -- faults and kills


@pytest.fixture
def server(s3_faults, request):
    """Return a server with a bucket of this test's own, which has objects below ``a/``."""
    s3_faults.heal()
    s3_faults.bucket = f"pack-{abs(hash(request.node.name)) % 10**9}"
    s3_faults.make(s3_faults.bucket)
    for number in range(30):
        for end in ("jpg", "cls"):
            s3_faults.put(s3_faults.bucket, f"a/{number:03}.{end}", f"{end}{number}".encode() * 50)
    return s3_faults


def options(server):
    store = server.store
    return ps.S3Options(
        endpoint=store.endpoint,
        access_key=store.access_key,
        secret_key=store.secret_key,
        region=store.region,
        retry=ps.RetryOptions(attempts=2, base_s=0.01),
    )


def packed(server, to="to", **how):
    return ps.pack(
        f"s3://{server.bucket}/a/", f"s3://{server.bucket}/{to}/", store=options(server), **{"samples": 7} | how
    )


def below(server, to="to"):
    return {key: data for key, data in server.objects(server.bucket).items() if key.startswith(f"{to}/")}


@pytest.mark.parametrize("fault", ["reset", "lost", "503", "truncate", "etag", "corrupt"])
@pytest.mark.parametrize("verb", ["get", "put", "head"])
def test_passing_fault_changes_nothing_of_what_is_packed(server, verb, fault):
    if verb not in (FAULTS[fault].verbs or {verb}):
        return
    wanted = {key.removeprefix("calm/"): data for key, data in below_of(server, "calm").items()}
    server.fail(FAULTS[fault], when=Match(verb=verb, bucket=server.bucket, times=1))
    try:
        packed(server)
    except PenstockError:
        server.heal()
        packed(server)
    found = {key.removeprefix("to/"): data for key, data in below(server).items()}
    assert found.keys() == wanted.keys()
    assert all(found[key] == wanted[key] for key in found if key.endswith(".tar"))


def below_of(server, to, **how):
    packed(server, to, **how)
    return below(server, to)


@pytest.mark.parametrize("kind", ["tar", "parquet"])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_failure_leaves_whole_shards_without_a_catalog_and_the_next_call_goes_on(server, after, kind):
    end = f".{kind}"
    wanted = {key.removeprefix("calm/"): data for key, data in below_of(server, "calm", format=kind).items()}
    server.fail(*[FAULTS["503"]] * 50, when=Match(verb="put", bucket=server.bucket, key=f"to/shard-{after:06}{end}"))
    with pytest.raises(PenstockError, match="SlowDown"):
        packed(server, format=kind)
    server.heal()
    kept = below(server)
    assert sorted(key for key in kept if key.endswith(end)) == [f"to/shard-{each:06}{end}" for each in range(after)]
    assert not {"to/index.catalog", "to/pack.json"} & kept.keys()
    before = len(server.seen("put", server.bucket))
    packed(server, format=kind)
    puts = [each.key for each in server.seen("put", server.bucket)[before:] if each.key.endswith(end)]
    assert puts == [f"to/shard-{each:06}{end}" for each in range(after, 5)], "finished shards are not written again"
    found = {key.removeprefix("to/"): data for key, data in below(server).items()}
    assert found.keys() == wanted.keys()
    assert all(found[key] == wanted[key] for key in found if key.endswith(end))


@pytest.mark.parametrize("kind", EVERY)
def test_object_that_is_replaced_meanwhile_is_a_change(server, kind):
    catalog = ps.Catalog.scan(f"s3://{server.bucket}/a/", store=options(server))
    server.put(server.bucket, "a/011.jpg", b"x")
    with pytest.raises(Changed, match=r"011\.jpg"):
        ps.pack(catalog, f"s3://{server.bucket}/to/", format=kind, samples=7, store=options(server))
    assert f"to/shard-000001.{kind}" not in below(server)


def test_shard_that_was_damaged_on_its_way_is_found_by_reading_it_back(server, monkeypatch):
    read = module.Packing.compare

    def damaged(self, name, record, _):
        server.put(server.bucket, f"to/{name}", b"y" * record.size)
        read(self, name, record, "")

    monkeypatch.setattr(module.Packing, "compare", damaged)
    with pytest.raises(ChecksumMismatch, match=r"overwrite=True.*shard-000000\.tar"):
        packed(server)
    monkeypatch.setattr(module.Packing, "compare", read)
    with pytest.raises((ChecksumMismatch, AlreadyExists)):
        packed(server)
    assert len(packed(server, overwrite=True)) == 30


def test_shards_are_not_read_back_if_that_is_not_wanted(server):
    before = len(server.seen("get", server.bucket))
    packed(server, verify=False)
    gets = {each.key for each in server.seen("get", server.bucket)[before:]}
    assert not any(key.startswith("to/shard") for key in gets)
    assert len(gets & {f"a/{number:03}.jpg" for number in range(30)}) == 30


_CODE = """
import sys
import penstock as ps
ps.pack(sys.argv[1], sys.argv[2], format=sys.argv[3], samples=5)
"""


@pytest.mark.parametrize("kind", [*EVERY, "mds"])
def test_killed_pack_leaves_whole_shards_and_goes_on(tmp_path, kind):
    tree = tmp_path / "tree"
    tree.mkdir()
    draw = random.Random(kind)
    for number in range(60):
        (tree / f"{number:03}.bin").write_bytes(draw.randbytes(300_000))
    ps.pack(tree, tmp_path / "whole", format=kind, samples=5)
    wanted = {each.name: each.read_bytes() for each in shards(tmp_path / "whole")}
    to, kills = tmp_path / "to", 0
    for attempt in range(40):
        process = subprocess.Popen([sys.executable, "-c", _CODE, tree, to, kind])
        # From the first write on, a little later each time.
        while process.poll() is None and not (to.exists() and any(to.iterdir())):
            time.sleep(0.002)
        time.sleep(0.004 * attempt)
        process.send_signal(signal.SIGKILL)
        status = process.wait()
        there = {each.name: each.read_bytes() for each in shards(to)} if to.exists() else {}
        assert all(wanted[name] == data for name, data in there.items()), "whole, or absent"
        if (to / "index.catalog").exists() or (to / "index.json").exists():
            assert there == wanted
        if status == 0:
            break
        kills += status == -signal.SIGKILL
    else:
        ps.pack(tree, to, format=kind, samples=5)
    assert kills
    ps.pack(tree, to, format=kind, samples=5)
    assert {each.name: each.read_bytes() for each in shards(to)} == wanted
    assert sorted(each.name for each in to.iterdir() if not each.name.startswith(".penstock")) == sorted(
        ["index.catalog", "pack.json", *wanted, *(["index.json"] if kind == "mds" else [])]
    )


def test_interrupted_pack_publishes_nothing_half(tree, tmp_path, monkeypatch):
    member, calls = module._ShardWriting._member, []

    def interrupted(self, *given):
        calls.append(given)
        if len(calls) == 15:
            raise KeyboardInterrupt
        member(self, *given)

    monkeypatch.setattr(module._ShardWriting, "_member", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ps.pack(tree, tmp_path / "to", samples=6)
    assert sorted(each.name for each in (tmp_path / "to").iterdir()) == ["shard-000000.tar", "shard-000000.tar.partial"]
    assert [name for name, _ in members(shards(tmp_path / "to")[0])] == [name for name, _ in contents(tree)[:12]]
    assert len(ps.pack(tree, tmp_path / "to", samples=6)) == 20


def test_records_of_another_pack_are_not_taken(tree, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(module.Packing, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            ps.pack(tree, tmp_path / "to", samples=6)
    with pytest.raises(AlreadyExists):
        ps.pack(tree, tmp_path / "to", samples=5)
    ps.pack(tree, tmp_path / "to", samples=5, overwrite=True)
    assert [len(members(each)) for each in shards(tmp_path / "to")] == [10, 10, 10, 10]


_MEMORY = (
    PEAK_KIB
    + """
import sys
import penstock as ps
options = ps.StoreOptions(read=ps.ReadOptions(ahead_bytes=32 << 20))
ps.pack(f"{sys.argv[1]}/tree", f"{sys.argv[1]}/to", format=sys.argv[2], bytes=2 << 30, store=options)
print(peak_kib())
"""
)


@pytest.mark.parametrize(("kind", "count"), [("tar", 16), ("parquet", 256)])
def test_memory_is_less_than_half_a_shard(tmp_path, kind, count):
    (tmp_path / "tree").mkdir()
    for at in range(count):
        with open(tmp_path / "tree" / f"{at}.bin", "wb") as file:
            file.truncate((1 << 30) // count)
    program = subprocess.run(
        [sys.executable, "-c", _MEMORY, tmp_path, kind], check=True, capture_output=True, text=True
    )
    assert (tmp_path / "to" / f"shard-000000.{kind}").stat().st_size > 1 << 30
    assert int(program.stdout) < 512 << 10


@pytest.mark.parametrize("name", ["overwrite", "verify"])
def test_a_switch_given_as_text_packs_nothing(tmp_path, name):
    with pytest.raises(Unusable, match=f"{name} must be True or False"):
        ps.pack(tmp_path, tmp_path / "to", **{name: "no"})
    assert not (tmp_path / "to").exists()


def test_overwrite_writes_anew_what_a_changed_transform_returns(tree, tmp_path):
    # Both have the same name.
    transforms = [lambda sample: sample, lambda sample: ps.Sample("file:///", Span(sample.key, 0, 3), b"new")]
    found = []
    for transform in transforms:
        dataset = ps.MapDataset.from_prefix(f"{tree}/", include="**/*.jpg", transform=transform)
        ps.pack(dataset, tmp_path / "to", samples=6, overwrite=True)
        found.append([data for each in shards(tmp_path / "to") for _, data in members(each)])
    assert found[0] != found[1]
    assert set(found[1]) == {b"new"}


def test_other_labels_are_another_pack(tree, tmp_path):
    catalog = ps.Catalog.scan(f"{tree}/", include="**/*.jpg", labels="folder")
    ps.pack(catalog, tmp_path / "to", samples=6)
    other = catalog.with_labels(["x"] * len(catalog))
    with pytest.raises(AlreadyExists, match="with different arguments"):
        ps.pack(other, tmp_path / "to", samples=6)
    assert ps.pack(other, tmp_path / "to", samples=6, overwrite=True).classes == ("x",)


@pytest.mark.parametrize(
    "manifest", [b"", b"[]", b"{}", b'{"penstock pack": 1, "plan": 5}', b'{"penstock pack": 1, "shards": [{}]}']
)
def test_a_damaged_manifest_is_named_and_may_be_overwritten(tree, tmp_path, manifest):
    ps.pack(tree, tmp_path / "to", samples=6)
    (tmp_path / "to" / "pack.json").write_bytes(manifest)
    with pytest.raises(Damaged, match="cannot read the manifest of a pack") as caught:
        ps.pack(tree, tmp_path / "to", samples=6)
    assert caught.value.url == f"file://{tmp_path}/to/pack.json"
    assert len(ps.pack(tree, tmp_path / "to", samples=6, overwrite=True)) == 20
