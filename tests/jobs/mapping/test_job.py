"""Maps: outputs, counts, what is refused, and repeats."""

import json
import os
import struct
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.errors import AlreadyExists, Changed, NotFound, PenstockError, Transient, Unusable
from penstock.jobs.parts.records import Records
from penstock.options import StoreOptions
from penstock.testing.faults import FaultServer
from tests.jobs.mapping.functions import Counting, deadly, fill_lines, holding, poison, rows, tokenise

FORMATS = ("tokens", "jsonl", "tar", "parquet", "mds")
PART_BYTES = 20_000


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def shards(folder):
    return {name: data for name, data in contents(folder).items() if name.startswith("shard-")}


def samples_of(source):
    paths = sorted(Path(source).parent.glob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def outputs_of(source, function):
    found = []
    for sample in samples_of(source):
        output = function(sample)
        found += output if isinstance(output, list) else [] if output is None else [output]
    return found


def do(source, function, to, **how):
    return ps.map(source, function, to, **{"format": "tokens", "part_bytes": PART_BYTES} | how)


@pytest.fixture
def source(tmp_path):
    return fill_lines(tmp_path / "in", seed=1)


def megatron_files(documents, dtype):
    """Return .bin and .idx as Megatron's IndexedDatasetBuilder writes them, by its documented layout."""
    sizes = [len(each) for each in documents]
    pointers, at = [], 0
    for size in sizes:
        pointers.append(at)
        at += size * np.dtype(dtype).itemsize
    codes = {"uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float64": 6, "float32": 7, "uint16": 8}
    index = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) + struct.pack("<B", codes[dtype])
    index += struct.pack("<Q", len(sizes)) + struct.pack("<Q", len(sizes) + 1)
    index += struct.pack(f"<{len(sizes)}i", *sizes) + struct.pack(f"<{len(sizes)}q", *pointers)
    index += struct.pack(f"<{len(sizes) + 1}q", *range(len(sizes) + 1))
    return b"".join(np.array(each, dtype).tobytes(order="C") for each in documents), index


@pytest.mark.parametrize("dtype", ["uint16", "int32", "int64"])
def test_tokens_have_the_bytes_of_megatron_s_builder(tmp_path, source, dtype):
    done = do(source, tokenise, tmp_path / "to", dtype=dtype, part_bytes=1 << 30)
    documents = outputs_of(source, tokenise)
    expected = megatron_files(documents, dtype)
    assert [data for _, data in sorted(shards(tmp_path / "to").items())] == [*expected]
    assert (done.outputs, done.tokens) == (len(documents), sum(map(len, documents)))
    dataset = ps.TokenDataset.from_shards(tmp_path / "to", length=None, documents=True)
    assert len(dataset) == len(documents)
    assert all((np.asarray(dataset[at]) == documents[at]).all() for at in range(0, len(documents), 50))


@pytest.mark.parametrize("form", FORMATS)
def test_outputs_are_complete_and_in_order_for_any_parts_and_processes(tmp_path, source, form):
    function = tokenise if form == "tokens" else rows
    done = do(source, function, tmp_path / "one", format=form)
    many = do(source, function, tmp_path / "many", format=form, processes=2)
    assert shards(tmp_path / "one") == shards(tmp_path / "many")
    assert done.parts == done.shards > 10
    assert (done.samples, done.skipped, done.complete) == (1200, 0, True)
    assert done.samples == done.kept + done.left_out
    assert done.outputs == len(outputs_of(source, function))
    assert (many.samples, many.outputs, many.shard_bytes) == (done.samples, done.outputs, done.shard_bytes)
    if form == "tokens":
        dataset = ps.TokenDataset.from_shards(tmp_path / "one", length=None, documents=True)
        found, expected = [dataset[at].tolist() for at in range(len(dataset))], outputs_of(source, function)
        assert found == [each.tolist() for each in expected]
        return
    dataset = ps.MapDataset.from_catalog(done.catalog)
    expected = outputs_of(source, function)
    assert len(dataset) == len(expected)
    for at in range(0, len(expected), 7):
        sample = dataset[at]
        value = (
            json.loads(bytes(sample.data))
            if form == "jsonl"
            else {"n": number(sample["n"]), "text": text(sample["text"])}
        )
        assert value == expected[at]


def number(value):
    return value if isinstance(value, int) else int(bytes(value.data))


def text(value):
    return value if isinstance(value, str) else bytes(value.data).decode()


@pytest.mark.usefixtures("source")
def test_a_map_that_is_done_is_recognised_by_three_requests(tmp_path):
    with FaultServer.start() as server:
        server.make("bucket")
        url = "s3://bucket/to/"
        for path in sorted((tmp_path / "in").iterdir()):
            server.put("bucket", f"in/{path.name}", path.read_bytes())
        first = do("s3://bucket/in/*.jsonl", tokenise, url, store=server.store)
        before = len(server.seen())
        assert do("s3://bucket/in/*.jsonl", tokenise, url, store=server.store) == first
        assert len(server.seen()) - before <= 3


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize(("form", "most"), [("tokens", 3), ("jsonl", 5)])
def test_records_take_few_requests_for_each_part(tmp_path, form, most):
    with FaultServer.start() as server:
        server.make("bucket")
        for path in sorted((tmp_path / "in").iterdir()):
            server.put("bucket", f"in/{path.name}", path.read_bytes())
        function = tokenise if form == "tokens" else rows
        done = do("s3://bucket/in/*.jsonl", function, "s3://bucket/to/", format=form, store=server.store, processes=2)
        records = sum("/.map/" in each.key for each in server.seen())
        print(f"{records} requests for records of {done.parts} parts, {len(server.seen())} in all")
        assert done.parts > 10
        assert done.parts < records <= most * done.parts + 20
        alone = do(f"{tmp_path}/in/*.jsonl", function, tmp_path / "to", format=form)
        assert {name.removeprefix("to/") for name in server.objects("bucket")} >= {*shards(tmp_path / "to")}
        assert (done.samples, done.shard_bytes) == (alone.samples, alone.shard_bytes)


def test_a_function_that_cannot_be_sent_is_refused(tmp_path, source):
    with pytest.raises(Unusable, match="cannot send the work to other processes"):
        do(source, partial(take_lock, threading.Lock()), tmp_path / "to", processes=2, version="1")


def take_lock(_lock, _sample):
    return [1]


def test_shares_of_several_machines_end_with_the_whole(tmp_path, source):
    one = do(source, tokenise, tmp_path / "to", part="1/2")
    assert (one.complete, one.catalog) == (False, None)
    two = do(source, tokenise, tmp_path / "to", part="2/2")
    assert (two.complete, two.samples) == (True, 1200)
    assert do(source, tokenise, tmp_path / "to", part="1/2") == two
    do(source, tokenise, tmp_path / "alone")
    assert shards(tmp_path / "to") == shards(tmp_path / "alone")


def test_a_batch_function_and_a_class_that_each_process_makes_once(tmp_path, source):
    Counting.made = 0
    done = do(source, Counting, tmp_path / "to")
    assert (Counting.made, done.outputs) == (1, 1200)
    batched = do(source, lambda samples: [[len(each["text"])] for each in samples], tmp_path / "batched", batch=64)
    assert batched.outputs == 1200
    assert shards(tmp_path / "to") == shards(tmp_path / "batched")
    with pytest.raises(Unusable, match="must return a list of as many values as samples, 64, got 63"):
        do(source, lambda samples: [[1]] * (len(samples) - 1), tmp_path / "x", batch=64, part_bytes=1 << 30)


def test_random_numbers_depend_on_the_seed_and_the_sample(tmp_path, source):
    def draw(_sample, random):
        return random.integers(0, 1000, 5)

    for to, seed in (("a", 1), ("b", 1), ("c", 2)):
        do(source, draw, tmp_path / to, seed=seed)
    assert shards(tmp_path / "a") == shards(tmp_path / "b") != shards(tmp_path / "c")
    dataset = ps.TokenDataset.from_shards(tmp_path / "a", length=None, documents=True)
    assert len({tuple(dataset[at].tolist()) for at in range(len(dataset))}) == len(dataset)


def test_a_sample_that_raises_fails_its_part_and_the_next_call_does_the_rest(tmp_path, source):
    with pytest.raises(Unusable, match=r"cannot map line 6: ValueError: no text here") as raised:
        do(source, poison, tmp_path / "to", version="1")
    assert "/in/0.jsonl#bytes=" in raised.value.url
    there = shards(tmp_path / "to")
    done = do(source, lambda sample: [sample["n"]], tmp_path / "other")
    assert 0 < len(there) < done.shards * 2
    seen = []

    def mended(sample):
        seen.append(sample["n"])
        return [sample["n"]]

    mended.__module__, mended.__qualname__ = poison.__module__, poison.__qualname__
    assert do(source, mended, tmp_path / "to", version="1").outputs == 1200
    assert 5 in seen
    assert 700 in seen
    assert len(seen) < 400
    assert shards(tmp_path / "to") == shards(tmp_path / "other")


@pytest.mark.parametrize("batch", [None, 16])
def test_skipped_samples_are_counted_and_named(tmp_path, source, batch):
    function = poison if batch is None else lambda samples: [poison(each) for each in samples]
    done = do(source, function, tmp_path / "to", on_error="skip", batch=batch)
    assert (done.samples, done.kept, done.left_out, done.skipped) == (1200, 1198, 0, 2)
    assert ["skipped: cannot map line 6: ValueError: no text here" in each["error"] for each in done.failures] == [
        True,
        False,
    ]
    assert all("#bytes=" in each["url"] for each in done.failures)
    with pytest.raises(Unusable, match=r"would be skipped, and on_error=\"skip\" allows a tenth"):
        do(source, lambda sample: sample["missing"], tmp_path / "x", on_error="skip")


def test_a_sample_that_kills_its_worker_is_set_aside_after_three_and_the_others_are_done(tmp_path, source, monkeypatch):
    monkeypatch.setenv("ANTIDOTE", str(tmp_path / "antidote"))
    with pytest.raises(Transient, match=r"its worker died 3 times \(killed by SIGKILL\)"):
        do(source, deadly, tmp_path / "to", processes=2)
    (tmp_path / "antidote").touch()
    assert do(source, deadly, tmp_path / "to", processes=2).outputs == 1200
    do(source, lambda sample: [sample["n"]], tmp_path / "other")
    assert shards(tmp_path / "to") == shards(tmp_path / "other")


def lose(folder, part):
    """Delete the record of a part, and what was written at the end."""
    for path in [*(folder / ".map" / "finished").rglob("*.json"), *(folder / ".map" / "done").rglob(f"{part:06}.json")]:
        path.unlink()
    (folder / "map.json").unlink()


def test_a_lost_record_is_made_again_and_a_shard_that_differs_is_noticed(tmp_path, source):
    do(source, tokenise, tmp_path / "to")
    before = contents(tmp_path / "to")
    lose(tmp_path / "to", 3)
    do(source, tokenise, tmp_path / "to")
    assert contents(tmp_path / "to") == before
    lose(tmp_path / "to", 3)
    path = tmp_path / "to" / "shard-000003.bin"
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(Changed, match="part 3 gave other bytes than an earlier attempt"):
        do(source, tokenise, tmp_path / "to")


def test_a_function_that_is_not_deterministic_is_noticed(tmp_path, source):
    calls = []

    def wild(_sample):
        calls.append(1)
        return [len(calls)]

    do(source, wild, tmp_path / "to")
    lose(tmp_path / "to", 0)
    with pytest.raises(Changed, match="seed= gives it random numbers"):
        do(source, wild, tmp_path / "to")


DRIVER = """
import sys
import threading
import time
from functools import partial
import penstock as ps
from tests.jobs.mapping.functions import holding
print(ps.map(sys.argv[1], holding, sys.argv[2], format="tokens", part_bytes=20_000).complete)
"""


def start(source, to, **environment):
    command = [sys.executable, "-c", DRIVER, str(source), str(to)]
    env = {**os.environ, **environment}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


def test_a_process_that_is_late_by_a_whole_map_changes_nothing(tmp_path, source):
    late = start(source, tmp_path / "to", HELD=str(tmp_path / "held"))
    until = time.monotonic() + 60
    while not (tmp_path / "held").exists():
        assert late.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    assert do(source, holding, tmp_path / "to").complete
    before = contents(tmp_path / "to")
    (tmp_path / "held").unlink()
    out, errors = late.communicate(timeout=60)
    assert out == "True\n", errors
    assert contents(tmp_path / "to") == before


def test_two_drivers_at_once_end_with_the_bytes_of_one(tmp_path, source):
    drivers = [start(source, tmp_path / "to") for _ in range(2)]
    ended = [each.communicate(timeout=120) for each in drivers]
    assert [out for out, _ in ended] == ["True\n", "True\n"], ended
    do(source, holding, tmp_path / "alone")
    assert shards(tmp_path / "to") == shards(tmp_path / "alone")


def test_a_result_that_was_deleted_is_written_again(tmp_path, source):
    done = do(source, tokenise, tmp_path / "to")
    before = contents(tmp_path / "to")
    (tmp_path / "to" / "map.json").unlink()
    assert do(source, tokenise, tmp_path / "to") == done
    assert contents(tmp_path / "to") == before


def test_a_source_that_is_replaced_while_it_is_mapped_is_noticed(tmp_path, source):
    seen = []

    def replacing(sample):
        seen.append(sample["n"])
        if len(seen) == 500:
            path = tmp_path / "in" / "2.jsonl"
            path.write_bytes(path.read_bytes().replace(b"so", b"to"))
            os.utime(path, (1, 1))
        return [sample["n"]]

    with pytest.raises(Changed):
        do(source, replacing, tmp_path / "to")
    assert not (tmp_path / "to" / "map.json").exists()


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda _: [70_000], r"line 1 has the token 70000, and uint16 holds 0 to 65535"),
        (lambda _: [-1], r"line 1 has the token -1, and uint16"),
        (lambda _: np.zeros(3), r"integers of one dimension, got float64 of shape \(3,\) for line 1"),
        (lambda _: np.zeros((2, 2), int), r"got int64 of shape \(2, 2\)"),
        (lambda _: "text", r"2\^31 integers of one dimension, got a str"),
        (lambda _: [[1, 2], "x"], r"one dimension, got a str for line 1"),
        (lambda _: [True], r"integers of one dimension"),
        (lambda sample: [1] if sample["n"] < 9 else {"tokens": [1], "loss": [1]}, r"or none, for all samples"),
        (lambda _: {"tokens": [1, 2], "loss": [1]}, r"a loss mask of 2 values"),
        (lambda _: {"tokens": [1, 2], "mask": [1, 1]}, r"tokens and loss, and nothing else, in a dict, got a dict"),
        (lambda _: {"tokens": [1, 2], "loss": [1, 300]}, r"line 1 has the loss 300, and uint8 holds 0 to 255 \["),
        (lambda _: [2**70], r"got a list for line 1"),
    ],
)
def test_outputs_that_are_not_tokens_are_refused_by_sample(tmp_path, source, function, match):
    with pytest.raises(Unusable, match=match) as raised:
        do(source, function, tmp_path / "to", dtype="uint16", part_bytes=1 << 30)
    assert "/in/0.jsonl#bytes=" in raised.value.url
    assert shards(tmp_path / "to") == {} if (tmp_path / "to").exists() else True


@pytest.mark.parametrize("form", ["jsonl", "tar", "parquet", "mds"])
def test_a_function_that_returns_another_type_half_way_is_refused(tmp_path, source, form):
    with pytest.raises(Unusable) as raised:
        do(source, lambda sample: {"a": "b"} if sample["n"] < 9 else "b", tmp_path / "to", format=form)
    assert "/in/0.jsonl#bytes=" in raised.value.url


def test_masks_of_loss_are_beside_the_tokens(tmp_path, source):
    done = do(
        source,
        lambda sample: {"tokens": [1, 2, sample["n"]], "loss": np.array([False, True, True])},
        tmp_path / "to",
        part_bytes=1 << 30,
    )
    assert (done.tokens, done.shards) == (3600, 1)
    assert (tmp_path / "to" / "shard-000000.loss").read_bytes() == bytes([0, 1, 1]) * 1200


@pytest.mark.parametrize(
    ("how", "match"),
    [
        ({"format": "csv"}, "format must be"),
        ({"dtype": "uint32"}, "Megatron's index has no uint32"),
        ({"dtype": "float32"}, "dtype must be one of"),
        ({"format": "jsonl", "dtype": "uint16"}, 'dtype= is for format="tokens"'),
        ({"batch": 0}, "batch must be"),
        ({"seed": -1}, "seed must be"),
        ({"part_bytes": 0}, "part_bytes must be"),
        ({"on_error": "ignore"}, "on_error must be"),
        ({"part": "3/2"}, "part must be"),
        ({"processes": 0}, "processes must be"),
        ({"fields": ("none",)}, "the line has no field 'none'"),
        ({"fields": "text"}, "fields must be several names"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(tmp_path, source, how, match):
    with pytest.raises(PenstockError, match=match):
        do(source, tokenise, tmp_path / "to", **how)


def test_destinations_and_records_in_wrong_places_are_refused(tmp_path, source):
    with pytest.raises(Unusable, match="the shards would be in the prefix that is read"):
        do(source, tokenise, tmp_path / "in" / "to")
    with pytest.raises(Unusable, match="outside the trees"):
        do(source, tokenise, tmp_path / "to", job=tmp_path / "to" / "job")
    with pytest.raises(Unusable, match="outside the trees"):
        do(source, tokenise, tmp_path / "to", job=tmp_path / "in" / "job")
    with pytest.raises(NotFound):
        do(tmp_path / "none" / "*.jsonl", tokenise, tmp_path / "to")


def test_two_maps_into_one_folder_are_refused(tmp_path, source):
    with pytest.raises(Unusable, match="job= has a different job"):
        do(source, tokenise, tmp_path / "to", part="1/2")
        do(source, poison, tmp_path / "to")
    with pytest.raises(AlreadyExists, match="a shard that this map did not write"):
        do(source, poison, tmp_path / "to", job=tmp_path / "job")
    do(source, tokenise, tmp_path / "to")
    with pytest.raises(AlreadyExists, match=r"another map, with function=.*tokenise source"):
        do(source, poison, tmp_path / "to", job=tmp_path / "job")
    (tmp_path / "to" / "shard-000001.bin").unlink()
    with pytest.raises(NotFound, match="deleted or replaced"):
        do(source, tokenise, tmp_path / "to")


def test_a_function_without_source_text_needs_a_version(tmp_path, source):
    function = eval("lambda sample: [1]")  # noqa: S307
    with pytest.raises(Unusable, match="pass version="):
        do(source, function, tmp_path / "to")
    assert do(source, function, tmp_path / "to", version="1").outputs == 1200


def test_a_map_that_leaves_everything_out_has_no_shards(tmp_path, source):
    done = do(source, lambda _: None, tmp_path / "to", format="tar")
    assert (done.samples, done.left_out, done.outputs, done.shards, done.catalog) == (1200, 1200, 0, 0, None)
    assert shards(tmp_path / "to") == {}


def test_rows_objects_and_catalogs_are_sources(tmp_path, source):
    do(source, rows, tmp_path / "rows", format="parquet")
    done = do(tmp_path / "rows", lambda row: [number(row["n"]) + 1], tmp_path / "tokens", fields=("n",))
    assert done.outputs == len(outputs_of(source, rows))
    folder = tmp_path / "objects"
    folder.mkdir()
    for at in range(20):
        (folder / f"{at:02}.bin").write_bytes(bytes(at))
    by_prefix = do(folder, lambda sample: [sample.size], tmp_path / "sizes", part_bytes=50)
    catalog = ps.Catalog.scan(folder)
    by_catalog = do(catalog, lambda sample: [sample.size], tmp_path / "again", part_bytes=50)
    assert (by_prefix.outputs, by_catalog.outputs) == (20, 20)
    assert by_prefix.shards > 2
    assert shards(tmp_path / "sizes") == shards(tmp_path / "again")
    with pytest.raises(Unusable, match="fields= is for a URL"):
        do(catalog, len, tmp_path / "x", version="1", fields=("a",))


def test_records_are_kept_below_the_destination_and_shown_by_jobs(tmp_path, source):
    done = do(source, tokenise, tmp_path / "to")
    records = Records(tmp_path / "to" / ".map", StoreOptions())
    assert len(records.numbers()) == done.parts
    assert records.remove() > done.parts
    assert do(source, tokenise, tmp_path / "to") == done
