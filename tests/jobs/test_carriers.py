"""Parts on a real Ray cluster, whose workers, machines and drivers are killed: the result is that of one process."""

import os
import random
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

import penstock as ps
from benchmarks import jobs as benchmark
from benchmarks import server as load_server
from penstock.errors import Unreachable, Unusable
from penstock.jobs.carriers import Here, carrier
from penstock.jobs.parts.operation import Means, Part
from penstock.jobs.parts.records import Records
from penstock.options import StoreOptions
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.conftest import REQUIRE_SERVERS
from tests.jobs.packed import fill
from tests.jobs.parts.deadly import Deadly
from tests.servers.ray_cluster import RayCluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "ray"
COUNT, PART = 240, 10
PARTS = COUNT // PART
# On two nodes with a processor each.
IN_FLIGHT = 5
KEYS = {"AWS_ACCESS_KEY_ID": "penstock-testing", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
soak = bool(os.environ.get("PENSTOCK_SOAK"))


@pytest.fixture(scope="module")
def cluster():
    with RayCluster.start(env=KEYS) as running:
        yield running


DEADLY = """
import sys
import penstock as ps
from penstock.jobs.parts.run import How, Job
from tests.conftest import REQUIRE_SERVERS
from tests.jobs.packed import fill
from tests.jobs.parts.deadly import Deadly
address, folder, deadly, pause_s = sys.argv[1:]
numbers = tuple(map(int, deadly.split(","))) if deadly else ()
operation = Deadly(folder, deadly=numbers, pause_s=float(pause_s))
try:
    print(Job(operation, folder + "/job", How(on=ps.Ray(address=address, retries=1))).work().parts_done)
except ps.PenstockError as error:
    print(type(error).__name__, error)
"""

COPY = """
import sys
import penstock as ps
address, source, dest, job, endpoint = sys.argv[1:]
store = ps.S3Options(endpoint=endpoint) if endpoint else None
done = ps.copy_tree(source, dest, job=job, part_objects=10, on=ps.Ray(address=address), store=store)
print(done.complete, done.copied + done.unchanged)
"""


def driver(cluster, program, *words):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, cluster.address, *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=cluster.env,
    )


def told(process, timeout=120, lines=1):
    out, errors = process.communicate(timeout=timeout)
    assert process.returncode == 0, errors
    # Ray itself writes of dead workers to standard output.
    last = out.strip().split("\n")[-lines:]
    return last[0] if lines == 1 else last


def test_parts_run_on_all_nodes_without_torch_and_finish_once(cluster, tmp_path):
    assert told(driver(cluster, DEADLY, tmp_path, "", 0.3)) == "5"
    seen = [(tmp_path / str(number)).read_text().split() for number in range(5)]
    assert {torch for torch, _ in seen} == {"False"}
    assert len({node for _, node in seen}) == 2
    assert (tmp_path / "finished").read_text() == "5"
    (tmp_path / "finished").unlink()
    assert told(driver(cluster, DEADLY, tmp_path, "", 0)) == "5"
    assert not (tmp_path / "finished").exists()


def test_a_part_that_kills_its_workers_is_set_aside_and_the_others_go_on(cluster, tmp_path):
    said = told(driver(cluster, DEADLY, tmp_path, "2", 0))
    assert said.startswith("Transient part 2 was set aside: its worker died 2 times")
    assert (tmp_path / "deaths").read_text().split() == ["2", "2"]
    records = Records(f"{tmp_path}/job", StoreOptions())
    assert (records.numbers(), records.numbers(failed=True)) == ({0, 1, 3, 4}, {2})
    assert not (tmp_path / "finished").exists()
    assert told(driver(cluster, DEADLY, tmp_path, "", 0)) == "5"
    assert records.numbers(failed=True) == set()


WARM = """
import sys
import penstock as ps
address, cache, url, endpoint = sys.argv[1:]
store = ps.S3Options(endpoint=endpoint, cache=ps.CacheOptions(path=cache))
done = ps.warm([url], on=ps.Ray(address=address), store=store)
print(done.nodes, done.fetched + done.present, done.failed)
try:
    ps.warm(url + "none", on=ps.Ray(address=address), store=store)
except ps.errors.NotFound as error:
    print(error.url)
"""


def test_each_machine_warms_its_cache_with_everything(cluster, tmp_path):
    with FaultServer.start() as server:
        server.make("bucket")
        for number in range(20):
            server.put("bucket", f"a/{number}", b"x")
        out = told(driver(cluster, WARM, tmp_path / "cache", "s3://bucket/a/", server.store.endpoint), lines=2)
        assert out == ["2 40 0", "s3://bucket/a/none"]
        # One directory for both: each object is there once.
        store = replace(server.store, cache=ps.CacheOptions(path=str(tmp_path / "cache")))
        assert ps.warm("s3://bucket/a/", store=store).present == 20


def example(cluster, name, *words):
    command = [sys.executable, "-W", "ignore", f"{EXAMPLES}/{name}", *map(str, words), "--address", cluster.address]
    return subprocess.run(command, env=cluster.env, capture_output=True, text=True, timeout=120, check=False)


def test_the_examples_pack_as_one_process_does_and_verify(cluster, tmp_path):
    source, packed = fill(tmp_path / "data"), tmp_path / "packed"
    done = example(cluster, "pack_bucket.py", source, packed, "--job", tmp_path / "pack", "--samples", 5)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("20 samples, the first with cls, jpg\n")
    ps.pack(source, tmp_path / "alone", samples=5)
    shards = sorted(path.name for path in packed.glob("shard-*"))
    assert len(shards) == 4
    assert all((packed / name).read_bytes() == (tmp_path / "alone" / name).read_bytes() for name in shards)

    (packed / "pack.json").write_bytes(b"{}")
    words = tmp_path / "alone", packed, "--job", tmp_path / "verify"
    done = example(cluster, "verify_bucket.py", *words)
    assert done.returncode == 1
    assert "not equal: " in done.stdout
    for name in ("pack.json", "index.catalog"):
        (packed / name).write_bytes((tmp_path / "alone" / name).read_bytes())
    done = example(cluster, "verify_bucket.py", *words)
    assert (done.returncode, done.stdout.partition(",")[0]) == (0, "6 objects are equal")


@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM])
def test_an_interrupted_driver_ends_soon_and_says_how_to_go_on(cluster, tmp_path, number):
    process = driver(cluster, DEADLY, tmp_path, "", 20)
    while not cluster.workers("penstock.deadly"):
        assert process.poll() is None
        time.sleep(0.05)
    began = time.monotonic()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert time.monotonic() - began < 15
    assert process.returncode != 0
    assert f"penstock jobs resume file://{tmp_path}/job/" in errors
    while cluster.workers("penstock.deadly"):
        assert time.monotonic() - began < 20
        time.sleep(0.05)


class TestKills:
    """A copy between prefixes of a bucket that fails 5 % of requests, while a process of each kind is killed."""

    @pytest.fixture
    def server(self):
        with FaultServer.start(Settings(latency_ms=20)) as running:
            running.make("bucket")
            for number in range(COUNT):
                running.put("bucket", f"from/{number % 7}/{number:04}", b"%d" % number * 50)
            running.put("bucket", "outside", b"x")
            running.fail(FAULTS["503"], when=Match(times=None, rate=0.05, seed=1))
            yield running

    @pytest.mark.parametrize("history", range(20) if soak else [0])
    def test_each_history_of_kills_ends_as_one_process_does(self, cluster, server, history, seed):
        draw = random.Random(f"{seed} {history}")
        source = {key: data for key, data in server.objects("bucket").items() if key.startswith("from/")}
        words = "s3://bucket/from/", "s3://bucket/to/", "s3://bucket/jobs/1/", server.store.endpoint
        kinds = ["worker", "raylet", "driver"]
        draw.shuffle(kinds)
        before, killed, process = {}, [], driver(cluster, COPY, *words)
        for kind in kinds:
            wanted = min(len(before) + draw.randrange(2, 6), PARTS - 2)
            while len(before := recorded(server)) < wanted and process.poll() is None:
                time.sleep(0.02)
            if self.kill(kind, cluster, process, draw):
                killed.append(kind)
            if kind == "driver":
                process.communicate()
                process = driver(cluster, COPY, *words)
        assert told(process) == f"True {COUNT}"
        after = recorded(server)
        assert len(after) == PARTS
        assert killed
        # A worker that outlives its driver may record a part that the next one has given out.
        assert len(before.items() - after.items()) <= IN_FLIGHT

        objects = server.objects("bucket")
        assert {
            key.replace("to/", "from/", 1): data for key, data in objects.items() if key.startswith("to/")
        } == source
        assert {key for key in objects if not key.startswith(("from/", "to/", "jobs/1/"))} == {"outside"}
        assert server.uploads("bucket") == []
        # A part that was done is not done again, but for those that were in flight.
        written = Counter(each.key for each in server.seen("put") if each.key.startswith("to/") and each.status == 200)
        assert len({key for key, times in written.items() if times > 1}) <= len(killed) * IN_FLIGHT * PART

    def kill(self, kind, cluster, process, draw):
        """Kill a process of a kind; return whether there was one."""
        if kind == "driver":
            process.kill()
            return True
        pids = cluster.workers("penstock.copy_tree") if kind == "worker" else cluster.raylets()[1:]
        if not pids:
            return False
        os.kill(draw.choice(pids), signal.SIGKILL)
        if kind == "raylet":
            cluster.add_node()
        return True


def recorded(server):
    return {key: data for key, data in server.objects("bucket").items() if key.startswith("jobs/1/done/")}


class TestRefusals:
    def test_options_with_keys_go_to_no_other_machine(self):
        store = ps.S3Options(access_key="AKIDEXAMPLE", secret_key="very-secret")
        with pytest.raises(Unusable, match=r"secret in it .* pass profile="):
            ps.copy_tree("s3://bucket/a/", "s3://bucket/b/", job="s3://bucket/job/", on=ps.Ray(), store=store)

    def test_a_cluster_that_is_not_there(self, tmp_path, monkeypatch):
        on_ray = carrier(ps.Ray(address="127.0.0.1:1"), Deadly(str(tmp_path)))
        monkeypatch.setattr(on_ray._ray, "init", failing(ConnectionError("nobody")))
        with pytest.raises(Unreachable, match=r"cannot reach a Ray cluster .*nobody"):
            next(on_ray.carried(Deadly(str(tmp_path)), iter(()), Means(None)))

    def test_a_report_of_what_others_copy(self, tmp_path):
        with pytest.raises(Unusable, match="report= lists what this process copies"):
            ps.copy_tree(tmp_path, tmp_path / "to", job=tmp_path / "job", on=ps.Ray(), report=tmp_path / "x")

    @pytest.mark.parametrize(
        "options", [{"cpus_per_part": 0}, {"cpus_per_part": "2"}, {"cpus_per_part": float("nan")}, {"retries": -1}]
    )
    def test_numbers_that_make_no_sense(self, options):
        with pytest.raises(Unusable, match=next(iter(options))):
            ps.Ray(**options)


def test_the_benchmark_measures_this_cluster_beside_processes(cluster, tmp_path, capsys):
    if message := load_server.missing():
        (pytest.fail if REQUIRE_SERVERS else pytest.skip)(message)
    (tmp_path / "data").mkdir()
    options = Namespace(objects=40, part_objects=10, rounds=1, parts=20)
    with load_server.serve(tmp_path) as serving:
        benchmark.measure(cluster, serving.plain, tmp_path, options)
    printed = capsys.readouterr().out
    assert "CPU seconds, Ray beside local: " in printed
    assert "seconds to the first new part of a driver that goes on: " in printed


def failing(error):
    def fail(**_):
        raise error

    return fail


def test_this_process_does_parts_one_after_the_other(tmp_path):
    operation, records = Deadly(str(tmp_path)), Records(f"{tmp_path}/job", StoreOptions())
    counted = []
    means = Means(records, count=lambda *numbers: counted.append(numbers))
    parts = iter([Part(3, (3, 1, 10), again=False), Part(1, (1, 1, 10), again=False)])
    ended = [*Here().carried(operation, parts, means)]
    assert [each.record.part for each in ended] == [3, 1]
    assert counted == [(1, 10), (1, 10)]
    assert records.numbers() == {1, 3}
