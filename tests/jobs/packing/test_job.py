"""A pack in parts has the bytes of one that a single process makes, after any stop, and writes no shard twice."""

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pytest

import penstock as ps
from penstock.errors import AlreadyExists, Damaged, Unusable
from penstock.jobs.packing import pack
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.jobs.packed import contents, fill

WAYS = [
    {"format": "tar", "samples": 3},
    {"format": "tar", "bytes": 6000},
    {"format": "zip", "bytes": 1500},
    {"format": "parquet", "samples": 7},
    {"format": "mds", "samples": 4, "columns": {"jpg": "jpeg", "cls": "bytes"}},
]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    return fill(tmp_path / "data", 40)


def packed(folder, **options):
    top = folder.parent
    return ps.pack(options.pop("source", folder), top / "parts", **{"job": top / "job", **options})


def alone(folder, **options):
    ps.pack(options.pop("source", folder), folder.parent / "alone", **options)
    return contents(folder.parent / "alone")


def bytes_of(found):
    # The catalog's file has times of the shards, which are of each run; its digest is compared below.
    return [(name, data) for name, data in found if name != "index.catalog"]


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_shards_have_the_bytes_of_a_single_process(folder, way):
    catalog = packed(folder, **way)
    assert len(catalog) == 40
    assert bytes_of(contents(folder.parent / "parts")) == bytes_of(alone(folder, **way))
    other = ps.Catalog.open(folder.parent / "alone" / "index.catalog", root=f"{folder.parent}/alone/")
    for mine, its in zip(catalog, other, strict=True):
        assert (mine.key.rpartition("/")[2], *mine[1:3]) == (its.key.rpartition("/")[2], *its[1:3])
    # The same call finds everything done.
    assert len(packed(folder, **way)) == 40


@pytest.mark.parametrize("mine", [True, False])
def test_a_record_that_a_slow_process_writes_after_the_last_step_is_deleted_if_it_is_of_this_pack(folder, mine):
    late, keep, kept = folder.parent / "parts" / "shard-000000.tar.partial", pack.Destination.keep, []

    def note(there, name, record):
        kept.append(asdict(record) | ({} if mine else {"plan": "other"}))
        keep(there, name, record)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pack.Destination, "keep", note)
        packed(folder, samples=40)
    assert not late.exists()
    late.write_text(json.dumps(kept[-1]))
    assert len(packed(folder, samples=40)) == 40
    assert late.exists() is not mine


def test_a_catalog_with_labels_in_another_order(folder):
    catalog = ps.Catalog.scan(f"{folder}/", include="**/*.jpg", labels="folder")
    catalog = catalog[[*range(39, -1, -1)]]
    made = packed(folder, source=catalog, samples=7)
    assert (made.classes, made.labels.tolist()) == (catalog.classes, catalog.labels.tolist())
    assert bytes_of(contents(folder.parent / "parts")) == bytes_of(alone(folder, source=catalog, samples=7))


def test_shares_make_the_shards_together(folder):
    assert packed(folder, samples=5, part="2/3") is None
    assert packed(folder, samples=5, part="3/3") is None
    assert not (folder.parent / "parts" / "index.catalog").exists()
    assert len(packed(folder, samples=5, part="1/3")) == 40


PROGRAM = """
import sys
import penstock as ps
source, dest, job, endpoint = sys.argv[1:]
store = ps.S3Options(endpoint=endpoint) if endpoint else None
print(len(ps.pack(source, dest, samples=2, job=job, store=store)))
"""


def test_a_pack_that_is_killed_again_and_again_writes_no_shard_twice(folder, seed):
    draw, top = random.Random(seed), folder.parent
    words = [sys.executable, "-c", PROGRAM, f"{folder}", f"{top}/parts", f"{top}/job", ""]
    done, seen = top / "job" / "done", {}
    for _ in range(3):
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        wanted = len(seen) + draw.randrange(1, 5)
        while process.poll() is None and (not done.exists() or len([*done.rglob("*.json")]) < wanted):
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        now = {path: path.read_bytes() for path in done.rglob("*.json")}
        assert seen.items() <= now.items()
        assert not (top / "parts" / "index.catalog").exists() or len(now) == 20
        seen = now
    assert subprocess.run(words, check=True, capture_output=True).stdout.split() == [b"40"]
    kept = [(name, data) for name, data in contents(top / "parts") if ".penstock-" not in name]
    assert bytes_of(kept) == bytes_of(alone(folder, samples=2))


def test_a_bucket_that_fails_while_packers_are_killed(tmp_path, seed):
    draw = random.Random(seed)
    with FaultServer.start(Settings(latency_ms=5)) as server:
        server.make("bucket")
        for number in range(40):
            server.put("bucket", f"data/{number:03}.bin", b"x" * number * 100)
        server.put("bucket", "outside", b"x")
        server.fail(FAULTS["503"], when=Match(times=None, rate=0.05))
        places = "s3://bucket/data/", "s3://bucket/parts/", "s3://bucket/job/"
        words = [sys.executable, "-c", PROGRAM, *places, server.store.endpoint]
        for _ in range(2):
            process = subprocess.Popen(words, env={**server.environment, "PYTHONPATH": ":".join(sys.path)})
            time.sleep(draw.uniform(1.0, 2.0))
            process.kill()
            process.wait()
        assert len(ps.pack(*places[:2], samples=2, job=places[2], store=server.store)) == 40
        ps.pack(places[0], f"{tmp_path}/alone", samples=2, store=server.store)
        objects = server.objects("bucket")
        found = sorted((key[6:], data) for key, data in objects.items() if key.startswith("parts/"))
        assert bytes_of(found) == bytes_of(contents(tmp_path / "alone"))
        assert {key for key in objects if not key.startswith(("data/", "parts/", "job/"))} == {"outside"}
        assert server.uploads("bucket") == []


class TestRefusals:
    def test_arguments_that_do_not_fit(self, folder):
        job, to = folder.parent / "job", folder.parent / "parts"
        dataset = ps.MapDataset.from_prefix(f"{folder}/", transform=len)
        for source, options, told in (
            (folder, {"part": "1/2"}, "pass job="),
            (folder, {"on": ps.Ray()}, "pass job="),
            (dataset, {"job": job}, "must be a URL or a Catalog"),
            (folder, {"job": job, "format": "parquet"}, "pass samples= instead"),
            (folder, {"job": job, "format": "mds"}, "pass samples= instead"),
            (folder, {"job": folder / "job"}, "outside the trees"),
            (dataset.catalog, {"job": job, "include": "*"}, "use Catalog.filter"),
        ):
            with pytest.raises(Unusable, match=told):
                ps.pack(source, to, **options)
        assert not to.exists()

    def test_another_pack_at_the_destination(self, folder):
        alone(folder, samples=3)
        with pytest.raises(AlreadyExists):
            ps.pack(folder, folder.parent / "alone", samples=4, job=folder.parent / "job")
        with pytest.raises(Unusable, match="is finished"):
            ps.pack(folder, folder.parent / "alone", samples=3, job=folder.parent / "job")
        made = ps.pack(folder, folder.parent / "alone", samples=4, job=folder.parent / "job", overwrite=True)
        assert len(made) == 40

    def test_an_object_that_was_replaced_since_the_plan(self, folder):
        assert packed(folder, samples=5, part="8/8") is None
        path = folder / "c0" / "000.jpg"
        path.write_bytes(b"longer than before")
        with pytest.raises((Damaged, ps.PenstockError)):
            packed(folder, samples=5)


def classes_of(catalog):
    return [catalog.classes[each] for each in catalog.labels]


def test_the_same_objects_with_other_labels_or_columns_are_another_job(folder):
    plain = ps.Catalog.scan(f"{folder}/", include="**/*.jpg")
    names = ["cat" if number < 20 else "dog" for number in range(40)]
    first = plain.with_labels(names).with_columns(weight=range(40))
    packed(folder, source=first, samples=7)
    for other in (plain.with_labels(names[::-1]).with_columns(weight=range(40)), first.with_columns(weight=[1] * 40)):
        with pytest.raises(Unusable, match="job= has a different job"):
            packed(folder, source=other, samples=7)
        made = packed(folder, source=other, samples=7, job=folder.parent / "job2", overwrite=True)
        assert classes_of(made) == classes_of(other)
        assert made.columns["weight"].tolist() == other.columns["weight"].tolist()
        shutil.rmtree(folder.parent / "job2")


def test_a_job_begun_anew_in_one_process_packs_the_objects_that_are_there_now(folder):
    packed(folder, samples=7)
    names = sorted(folder.rglob("*.jpg"))
    for path in names:
        path.write_bytes(path.read_bytes()[::-1])
    for place in ("job", "parts"):
        shutil.rmtree(folder.parent / place)
    packed(folder, samples=7)
    assert bytes_of(contents(folder.parent / "parts")) == bytes_of(alone(folder, samples=7))


def test_a_pack_follows_the_endpoint_of_the_environment(monkeypatch):
    packed_there = []
    with FaultServer.within() as one, FaultServer.within() as two:
        for server in (one, two):
            server.make("bucket")
            server.put("bucket", "data/0.txt", b"x")
            monkeypatch.setenv("AWS_ENDPOINT_URL", server.store.endpoint)
            monkeypatch.setenv("AWS_REGION", server.store.region)
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.store.access_key)
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.store.secret_key)
            ps.pack("s3://bucket/data/", "s3://bucket/packed/", samples=1, job="s3://bucket/job/")
            packed_there.append({key for key in server.objects("bucket") if key.startswith("packed/")})
    assert "packed/shard-000000.tar" in packed_there[0]
    assert packed_there[0] == packed_there[1]


def test_the_same_names_at_another_endpoint_are_another_job(folder):
    with FaultServer.start() as one, FaultServer.start() as two:
        for server in (one, two):
            server.make("bucket")
            for number in range(4):
                server.put("bucket", f"data/{number}.jpg", b"%d" % number)
        places = "s3://bucket/data/", "s3://bucket/packed/"
        ps.pack(*places, samples=2, job=folder.parent / "job", store=one.store)
        told = f"endpoint of s3://bucket/data/='{one.store.endpoint}'.*, not .*{two.store.endpoint}"
        with pytest.raises(Unusable, match=told):
            ps.pack(*places, samples=2, job=folder.parent / "job", store=two.store)


@pytest.mark.parametrize("overwrite", [False, True])
def test_processes_that_do_all_parts_at_once_make_one_pack(folder, overwrite):
    top = folder.parent
    if overwrite:
        ps.pack(folder, top / "parts", samples=9)
    program = (
        "import sys, penstock as ps; sys.stdin.readline(); "
        f"print(len(ps.pack({str(folder)!r}, {str(top / 'parts')!r}, samples=2, job={str(top / 'job')!r}, "
        f"overwrite={overwrite})))"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    packers = [subprocess.Popen([sys.executable, "-c", program], **pipes) for _ in range(3)]
    for each in packers:
        each.stdin.write("\n")
        each.stdin.flush()
    ends = [each.communicate(timeout=60) for each in packers]
    assert [out.strip() for out, _ in ends] == ["40"] * 3, [error[-300:] for _, error in ends]
    assert bytes_of(contents(top / "parts")) == bytes_of(alone(folder, samples=2))
    catalog = ps.Catalog.open(top / "parts" / "index.catalog", root=f"{top}/parts/")
    assert len([*ps.MapDataset(catalog)]) == 40


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"offsets": [0]}, "as many sizes as offsets"),
        ({"offsets": [-1]}, r"offsets\[0\]"),
        ({"sizes": None}, "sizes"),
        ({"size": "5"}, "size must be"),
        ({"compared": 1}, "compared"),
        ({"version": 2}, "version"),
    ],
)
def test_damaged_data_of_a_part_names_its_url_and_field(folder, change, field):
    packed(folder, samples=20)
    [*_, path] = sorted((folder.parent / "job" / "data").glob("*/*"))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    [finished] = (folder.parent / "job" / "finished").iterdir()
    finished.unlink()
    with pytest.raises(Damaged, match=f"cannot read the record of a shard: .*{field}") as caught:
        packed(folder, samples=20)
    assert caught.value.url == f"file://{path}"
