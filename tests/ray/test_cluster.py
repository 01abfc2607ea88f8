"""Ray Train and Ray Data on a real cluster: exactly once over killed and elastic workers; the example; a dataset."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

import penstock as ps
from benchmarks import ray_data as benchmark
from penstock.testing.faults import FaultServer, Settings
from tests.servers.ray_cluster import RayCluster

SAMPLES, GLOBAL_BATCH, EPOCHS = 120, 12, 2
ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("train_program.py")
LIGHTNING = Path(__file__).with_name("lightning_program.py")


@pytest.fixture(scope="module")
def cluster():
    with RayCluster.start(env=benchmark.KEYS) as running:
        yield running


@pytest.fixture
def settings(tmp_path):
    for number in range(SAMPLES):
        path = tmp_path / "train" / f"{number:03}"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    return {"folder": str(tmp_path), "url": f"file://{tmp_path}/train/", "workers": 2, "dies": 8}


def fit(cluster, settings):
    words = [sys.executable, "-W", "ignore", str(PROGRAM), json.dumps(settings)]
    ran(words, cluster)
    return json.loads(Path(settings["folder"], "result").read_text())


def ran(words, cluster):
    """Return the last line that a program on the cluster prints."""
    env = {**cluster.env, "RAY_ADDRESS": cluster.address}
    ended = subprocess.run(words, capture_output=True, text=True, env=env, timeout=400, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout.strip().rpartition("\n")[2]


def batches(folder):
    """Return the keys by epoch and step, over all ranks; attempts that differ fail."""
    seen = {}
    for path in folder.glob("seen-*"):
        for line in path.read_text().splitlines():
            epoch, step, rank, world, keys = json.loads(line)
            assert seen.setdefault((epoch, step, world, rank), keys) == keys
    found = {}
    for (epoch, step, world, _), keys in seen.items():
        found.setdefault((epoch, step), {}).setdefault(world, []).extend(keys)
    # A step that was begun by some workers only was done again, by another number of them.
    whole = {at: [keys for keys in worlds.values() if len(keys) == GLOBAL_BATCH] for at, worlds in found.items()}
    assert all(sorted(each) == sorted(first) for first, *others in whole.values() for each in others)
    return {at: first for at, (first, *_) in whole.items()}


def test_a_killed_worker_costs_no_sample_and_repeats_none(cluster, settings, tmp_path):
    step, url, number = fit(cluster, settings)
    steps = SAMPLES // GLOBAL_BATCH * EPOCHS
    assert (step, number, url) == (steps // 3 * 3, steps // 3 * 3, f"{tmp_path}/run/")
    assert (tmp_path / "died").exists()
    assert "leave out prepare_data_loader, and pass device=" in (tmp_path / "refused").read_text()
    found = batches(tmp_path)
    assert len(found) == steps
    for epoch in range(EPOCHS):
        keys = [key for (at, _), batch in found.items() if at == epoch for key in batch]
        assert sorted(keys) == [*range(SAMPLES)]
    assert ps.CheckpointManager(url).restore(number) == {"step": number}
    # Ray wrote its checkpoints through the file system that it was given.
    assert [*(tmp_path / "ray" / "training").rglob("penstock.json")]


@pytest.mark.slow
def test_lightning_on_ray_loses_and_repeats_no_sample_though_a_worker_is_killed(cluster, settings, tmp_path):
    ran([sys.executable, "-W", "ignore", str(LIGHTNING), json.dumps(settings)], cluster)
    assert (tmp_path / "died").exists()
    found = batches(tmp_path)
    assert len(found) == SAMPLES // GLOBAL_BATCH * EPOCHS
    assert sorted(key for batch in found.values() for key in batch) == sorted([*range(SAMPLES)] * EPOCHS)
    # The steps from the last checkpoint to the kill came twice, and no others.
    steps = [json.loads(line)[1:3] for path in tmp_path.glob("seen-*") for line in path.read_text().splitlines()]
    assert sorted({step for step, rank in steps if steps.count([step, rank]) > 1}) == [7, 8]


def test_the_example_trains_from_a_folder_of_classes_and_continues(cluster, tmp_path):
    for number in range(48):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes([number]) * 64)
    words = [f"file://{tmp_path}/photos/", "--run", f"file://{tmp_path}/run/", "--epochs", "3", "--save-every", "2"]
    said = ran([sys.executable, "-W", "ignore", str(ROOT / "examples/ray/train.py"), *words], cluster)
    assert said == f"file://{tmp_path}/run/steps/ 6"


def test_the_example_resizes_images_into_shards(cluster, tmp_path):
    for number in range(4):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20), (number, 0, 0)).save(path)
    words = [f"file://{tmp_path}/photos", f"{tmp_path}/small", "--size", "8", "--samples", "2"]
    said = ran([sys.executable, "-W", "ignore", str(ROOT / "examples/ray/preprocess.py"), *words], cluster)
    assert said == "4 samples, the first with png, cls"
    dataset = ps.MapDataset.from_catalog(f"{tmp_path}/small/index.catalog")
    found = sorted((*each.getpixel((0, 0)), each.size, label) for each, label in map(decoded, dataset))
    assert found == [(number, 0, 0, (8, 4), number % 2) for number in range(4)]


def decoded(sample):
    return Image.open(sample["png"]), int(sample["cls"].data)


@pytest.mark.slow
def test_the_benchmark_of_ray_data_measures_readers_and_checkpoints(cluster, capsys):
    benchmark.measure(cluster, Namespace(objects=40, files=1, rounds=1, rows=400))
    printed = capsys.readouterr().out
    assert "objects/s beside read_binary_files: " in printed
    assert "CPU seconds beside download(): " in printed
    assert "bytes of the loader's state: 1" in printed


@pytest.mark.slow
def test_elastic_workers_two_then_four_then_three_lose_and_repeat_nothing(settings, tmp_path):
    # The transform is a lambda of the driver's program: worker processes get its code.
    settings |= {"workers": [2, 4], "dies": 0, "grows": 8, "shrinks": 14, "spawned": True}
    with RayCluster.start() as cluster, ThreadPoolExecutor(1) as pool:
        running = pool.submit(fit, cluster, settings)
        awaited(tmp_path / "grows", running)
        for _ in range(2):
            cluster.add_node()
        awaited(tmp_path / "shrinks", running)
        os.kill(cluster.raylets()[-1], signal.SIGKILL)
        step, url, number = running.result()
    assert (step, number) == (18, 18)
    found = batches(tmp_path)
    assert sorted(key for batch in found.values() for key in batch) == sorted([*range(SAMPLES)] * EPOCHS)
    worlds = {json.loads(line)[3] for path in tmp_path.glob("seen-*") for line in path.read_text().splitlines()}
    assert {2, 4, 3} <= worlds
    assert ps.CheckpointManager(url).restore(number) == {"step": number}


def awaited(path, running):
    while not path.exists():
        assert not running.done(), running.result()
        time.sleep(0.05)


READ = """
import sys
import ray
import penstock.ray
ray.init(logging_level="ERROR", log_to_driver=False)
ray.data.DataContext.get_current().enable_progress_bars = False
rows = penstock.ray.read(sys.argv[1], override_num_blocks=4)
died = f"{sys.argv[2]}/died"
def text(row):
    import os
    if row["key"].endswith("/050") and not os.path.exists(died):
        open(died, "w").close()
        os.kill(os.getpid(), 9)
    return {"key": row["key"].rpartition("/")[2], "txt": row["bytes"]}
made = penstock.ray.write(rows.map(text), f"file://{sys.argv[2]}/shards/", samples=25)
print(len(made))
"""


def test_a_dataset_becomes_shards_with_each_sample_once_though_a_task_is_killed(cluster, settings, tmp_path):
    catalog = f"file://{tmp_path}/all.catalog"
    ps.Catalog.scan(settings["url"]).save(catalog)
    assert ran([sys.executable, "-W", "ignore", "-c", READ, catalog, str(tmp_path)], cluster) == f"{SAMPLES}"
    assert (tmp_path / "died").exists()
    made = ps.Catalog.open(tmp_path / "shards" / "index.catalog", root=f"{tmp_path}/shards/")
    found = sorted((sample.key, bytes(sample["txt"].data)) for sample in ps.MapDataset.from_catalog(made))
    assert found == [(f"{number:03}", b"x") for number in range(SAMPLES)]


NODES = """
import json, sys
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as At
folder, endpoint = sys.argv[1:]
ray.init(logging_level="ERROR", log_to_driver=False)

def work(folder, endpoint, node, number):
    import os, time
    from pathlib import Path
    import penstock as ps

    def met(name):
        Path(f"{folder}/{node}-{name}-{number}").touch()
        while not Path(f"{folder}/{node}-{name}-{1 - number}").exists():
            time.sleep(0.01)

    met("begun")
    shared = ps.NodeOptions(connections=6)
    cache = ps.CacheOptions(path=f"{folder}/cache-{node}")
    store = ps.S3Options(endpoint=endpoint, node=shared)

    def read(store):
        size = lambda sample: sample.size
        return ps.DataLoader(ps.MapDataset.from_prefix("s3://bucket/a/", transform=size, store=store), 4)

    # Requests until both know of each other, and share.
    until = time.monotonic() + 30
    while time.monotonic() < until and not ((now := ps.cache.node_status()).processes and now.connections < 6):
        sum(1 for _ in read(store))
    status = ps.cache.node_status()
    met("shared")
    loader = read(ps.S3Options(endpoint=endpoint, node=shared, cache=cache))
    if number:
        # After the other one has filled the cache.
        met("read")
    sum(1 for _ in loader)
    if not number:
        met("read")
    report = loader.report()
    return [os.getpid(), [*status.processes], status.connections, status.directory, report.context.host, report.cached]

alive = [each["NodeID"] for each in ray.nodes() if each["Resources"].get("CPU")]
found = []
for node in alive:
    # Both nodes are this machine: each gets its own directory for what its processes share.
    own = {"env_vars": {"PENSTOCK_NODE": f"{folder}/node-{node}"}}
    task = ray.remote(num_cpus=0.5, runtime_env=own, scheduling_strategy=At(node, soft=False))(work)
    found += [task.remote(folder, endpoint, node, number) for number in (0, 1)]
print(json.dumps(ray.get(found)))
"""


@pytest.mark.slow
def test_workers_of_a_node_share_its_budget_and_its_cache_and_their_reports_name_it(cluster, tmp_path):
    keys = 12
    with FaultServer.start(Settings(latency_ms=20)) as server:
        server.make("bucket")
        for number in range(keys):
            server.put("bucket", f"a/{number:03}", b"x" * 1000)
        command = [sys.executable, "-W", "ignore", "-c", NODES, str(tmp_path), server.store.endpoint]
        found = json.loads(ran(command, cluster))
    for node in (found[:2], found[2:]):
        pids, others, connections, directories, hosts, cached = zip(*node, strict=True)
        assert [*others] == [[pids[1]], [pids[0]]]
        assert all(0 < each < 6 for each in connections)
        assert len({*directories}) == 1
        assert {*hosts} == {platform.node()}
        # The second reads what the first one has fetched.
        assert cached == (0, keys)
    assert found[0][3] != found[2][3]
