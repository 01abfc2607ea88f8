"""A saved plan opens the rows that it was made of, without their indexes, and no other files."""

import json
import struct
from hashlib import sha256

import numpy as np
import pytest

import penstock as ps
from penstock import events
from penstock.data.tokens import packing
from penstock.errors import AlreadyExists, Changed, ChecksumMismatch, Damaged, NotFound, Unusable
from tests.data.tokens.files import megatron
from tests.data.tokens.lengths import write_numbered
from tests.servers.moto import moto

LENGTH = 64


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "_LEAST_BYTES", 8 * LENGTH * 4)
    draw = np.random.default_rng(0)
    folder = tmp_path / "tokens"
    folder.mkdir()
    write_numbered(folder, [draw.integers(0, 90, 1500), [0, 0], [], draw.integers(1, 30, 900)])
    return folder


@pytest.fixture
def plan(tmp_path):
    return tmp_path / "rows.plan"


def made(folder, plan, **options):
    return ps.index(f"{folder}/", plan, **{"format": "packing", "length": LENGTH, **options})


def opened(folder, plan=None, **options):
    return ps.TokenDataset.from_shards(f"{folder}/", **{"length": LENGTH, "pack": "best-fit", "plan": plan, **options})


@pytest.mark.parametrize("options", [{}, {"pack": "cut"}, {"longer": "leave-out"}])
def test_rows_of_a_saved_plan_are_those_of_the_indexes(folder, plan, options):
    dataset = made(folder, plan, **options)
    planned, alone = opened(folder, plan, **options), opened(folder, **options)
    assert dataset.contents.digest == planned.contents.digest == alone.contents.digest
    for name in ("padding", "cut", "left_out", "tokens"):
        assert getattr(planned, name) == getattr(alone, name)
    state = ps.DataLoader(alone, 8, shuffle=True).state_dict()
    loader = ps.DataLoader(planned, 8, shuffle=True)
    loader.load_state_dict(state)
    batches = zip(loader, ps.DataLoader(alone, 8, shuffle=True), strict=True)
    assert all(one.tokens.equal(other.tokens) and one.seq_lens == other.seq_lens for one, other in batches)


def test_opening_by_a_plan_takes_the_listing_and_reads_the_plan_alone(monkeypatch):
    ended = []
    with moto() as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        for number in range(40):
            for end, body in zip(("bin", "idx"), megatron([[[1, 2, 3]], [[4]]]), strict=True):
                client.put_object(Bucket="bucket", Key=f"t/{number:02}.{end}", Body=body)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        ps.index("s3://bucket/t/", "s3://bucket/4.plan", format="packing", length=4)
        stop = events.subscribe(lambda each: ended.append(each) if isinstance(each, events.RequestEnded) else None)
        try:
            dataset = ps.TokenDataset.from_shards(
                "s3://bucket/t/", length=4, pack="best-fit", plan="s3://bucket/4.plan"
            )
        finally:
            stop()
        assert len(ended) <= 3
        assert sum(len(batch.tokens) for batch in ps.DataLoader(dataset, 8)) == 40


def test_a_plan_has_few_bytes_a_document(folder, plan):
    made(folder, plan)
    # Documents have at most 90 tokens.
    assert plan.stat().st_size < 2402 + 16 * 300 + 1500


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "3.bin").write_bytes((folder / "3.bin").read_bytes() + bytes(4)), r"3\.bin or its"),
        (lambda folder: (folder / "3.idx").write_bytes((folder / "3.idx").read_bytes()), r"3\.bin or its index"),
        (lambda folder: [(folder / f"2.{end}").unlink() for end in ("bin", "idx")], r"2\.bin is gone"),
        (lambda folder: write_numbered(folder, [[5]] * 5), r"4\.bin is new"),
    ],
)
def test_a_source_that_changed_since_the_plan_is_refused(folder, plan, change, message):
    made(folder, plan)
    change(folder)
    with pytest.raises(Changed, match=f"the plan is of other files: {message}"):
        opened(folder, plan)


def test_files_in_another_order_are_other_files(folder, plan):
    made(folder, plan)
    urls = [folder / f"{number}.bin" for number in (3, 1, 2, 0)]
    with pytest.raises(Changed, match=r"\.bin"):
        ps.TokenDataset.from_shards(urls, length=LENGTH, pack="best-fit", plan=plan)


def test_rows_of_another_shape_are_refused(folder, plan):
    made(folder, plan)
    for options in ({"length": 65}, {"pack": "cut"}, {"longer": "leave-out"}):
        with pytest.raises(Unusable, match=r"cannot open rows of length=6.*the plan is of length=64, pack='best-fit'"):
            opened(folder, plan, **options)
    with pytest.raises(Unusable, match="the plan is of int32 tokens, not uint16"):
        opened(folder, plan, dtype="uint16")
    with pytest.raises(Unusable, match="plan= is for packed rows"):
        opened(folder, plan, pack=None)


def rewritten(plan, change):
    """Write a plan with another header, whose digest is right."""
    data = plan.read_bytes()
    magic, size, _ = struct.unpack_from("<16sQ32s", data)
    header = json.loads(data[56 : 56 + size])
    body = change(header, bytearray(data[56 + size :]))
    header["sections"][0]["sha256"] = sha256(body).hexdigest()
    text = json.dumps(header).encode()
    plan.write_bytes(struct.pack("<16sQ32s", magic, len(text), sha256(text).digest()) + text + body)


def test_damaged_and_forged_plans_are_refused(folder, plan):
    with pytest.raises(NotFound):
        opened(folder, plan)
    plan.write_text("no plan")
    with pytest.raises(Damaged, match="not a plan of packed rows"):
        opened(folder, plan)
    plan.unlink()
    made(folder, plan)
    whole = plan.read_bytes()
    for at, kind in ((60, ChecksumMismatch), (len(whole) - 9, ChecksumMismatch)):
        plan.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(kind):
            opened(folder, plan)
    for end in (0, 10, 50, 100, len(whole) - 8):
        plan.write_bytes(whole[:end])
        with pytest.raises((Damaged, ChecksumMismatch)):
            opened(folder, plan)

    def forged(change):
        plan.write_bytes(whole)
        rewritten(plan, change)
        return opened(folder, plan)

    with pytest.raises(Unusable, match="the plan of packed rows has version 2, known is 1: make it again"):
        forged(lambda header, body: header.update(version=2) or body)
    with pytest.raises(Damaged, match="its header describes"):
        forged(lambda _, body: body[:-8])
    with pytest.raises(Damaged, match="other documents than"):
        forged(lambda _, body: bytes([body[0] ^ 1]) + body[1:])
    with pytest.raises(Damaged, match="contradict one another"):
        forged(lambda _, body: body[:-64] + bytes(64))
    with pytest.raises(Damaged, match=r"vectors\[0\] must be"):
        forged(lambda header, body: header["sections"][0].update(vectors=[[1]]) or body)
    with pytest.raises(Damaged, match="other vectors than those of its files"):
        forged(lambda header, body: header["sections"][0].update(vectors=[["<i1", len(body)]]) or body)
    assert len(forged(lambda _, body: body))


def test_no_other_file_is_overwritten(folder, plan):
    plan.write_text("mine")
    with pytest.raises(AlreadyExists, match="the existing file is not one"):
        made(folder, plan)
    assert plan.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": None}, "pack= needs length="),
        ({"fields": "txt"}, "fields= cannot be combined with format='packing'"),
        ({"job": "records/"}, "job= cannot be combined with format='packing': one process reads"),
        ({"processes": 4}, "processes= cannot be combined"),
        ({"include": "*.bin"}, "include= and exclude= are for objects"),
        ({"format": "tar"}, "length=, pack=, longer= and dtype= are for packed rows"),
        ({"format": None}, "length=, pack=, longer= and dtype= are for packed rows"),
    ],
)
def test_wrong_arguments_of_an_index_are_refused(folder, plan, options, message):
    with pytest.raises(Unusable, match=message):
        made(folder, plan, **options)
    assert not plan.exists()


def test_documents_of_one_and_of_many_tokens_keep_their_lengths(tmp_path, plan):
    data, idx = megatron([[[1]], [[2] * 70_000], [[]]], "u2")
    (tmp_path / "a.bin").write_bytes(data)
    (tmp_path / "a.idx").write_bytes(idx)
    assert made(tmp_path, plan).contents.digest == opened(tmp_path, plan).contents.digest
