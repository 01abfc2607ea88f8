"""What one rank of a process group finds for all: once, the same for each, and without a hang if that rank is gone."""

from __future__ import annotations

import io
import os
import signal
import tarfile

import numpy as np
import pytest
import torch.distributed as dist

import penstock as ps
from penstock.data import ranks as shared
from penstock.data.ranks import is_own, share_result
from penstock.errors import NotFound, Unusable
from penstock.testing.faults import FAULTS, FaultServer, Match, Settings
from tests.children import forked
from tests.data.datasets.ranks import free_port, ranks
from tests.data.tokens.files import megatron

OBJECTS = 2500


@pytest.fixture(params=["file", "tcp"])
def init_method(request, tmp_path):
    return f"file://{tmp_path}/store" if request.param == "file" else f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture
def tcp():
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def server():
    with FaultServer.start(Settings()) as server:
        server.make("bucket")
        for number in range(OBJECTS):
            server.put("bucket", f"train/{number % 5}/{number:04d}.bin", b"x")
        for number in range(4):
            archive = io.BytesIO()
            with tarfile.open(fileobj=archive, mode="w") as file:
                for name in ("a.txt", "b.txt"):
                    file.addfile(tarfile.TarInfo(name), io.BytesIO(b""))
            server.put("bucket", f"shards/{number}.tar", archive.getvalue())
            server.put(
                "bucket", f"tokens/{number}.bin", np.arange(number * 100, number * 100 + 50, dtype="<u2").tobytes()
            )
        yield server


@pytest.fixture(autouse=True)
def environment(server, monkeypatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.heal()


def _requests(server, work, count, init_method):
    """Return what each rank returned, and the number of requests of all."""
    before = len(server.seen())
    return ranks(count, init_method, work), len(server.seen()) - before


def _listed():
    catalog = ps.Catalog.scan("s3://bucket/train/", labels="folder")
    return catalog.version, len(catalog), catalog.classes


def _grouped():
    catalog = ps.Catalog.scan("s3://bucket/train/", group="folder", fields=("0000.bin", "0005.bin"), missing="drop")
    return catalog.version, len(catalog), ps.MapDataset(catalog)[0]["0005.bin"].read()


def _walked():
    dataset = ps.MapDataset.from_shards(iter(f"s3://bucket/shards/{number}.tar" for number in range(4)))
    return dataset.catalog.version, len(dataset), dataset[7].key


def _tokens():
    dataset = ps.TokenDataset.from_shards("s3://bucket/tokens/", length=25, dtype="uint16", output="numpy")
    return dataset.contents.digest, len(dataset), dataset.url_of(7)


def _packed(plan=None):
    dataset = ps.TokenDataset.from_shards("s3://bucket/texts/", length=25, pack="best-fit", plan=plan)
    return dataset.contents.digest, len(dataset), dataset.padding


def _packed_by_plan():
    return _packed("s3://bucket/texts.plan")


def test_indexes_and_saved_plans_of_packed_documents_are_found_on_one_rank(server, tcp):
    for number in range(4):
        for end, body in zip(("bin", "idx"), megatron([[[1] * size] for size in (3, 9, 30, number)]), strict=True):
            server.put("bucket", f"texts/{number}.{end}", body)
    before = len(server.seen())
    alone = _packed()
    requests = len(server.seen()) - before
    assert _requests(server, _packed, 3, tcp) == ([alone] * 3, requests)
    ps.index("s3://bucket/texts/", "s3://bucket/texts.plan", format="packing", length=25)
    before = len(server.seen())
    assert _packed_by_plan() == alone
    requests = len(server.seen()) - before
    found, of_all = _requests(server, _packed_by_plan, 3, f"tcp://127.0.0.1:{free_port()}")
    assert found == [alone] * 3
    # Each rank reads the plan; one lists.
    assert of_all == 3 * (requests - 1) + 1


def _started():
    return _listed(), _walked(), _tokens()


def test_the_requests_of_a_start_do_not_grow_with_the_ranks(server, tmp_path):
    before = len(server.seen())
    alone, requests = _started(), len(server.seen()) - before
    for count in (2, 5):
        found, of_all = _requests(server, _started, count, f"file://{tmp_path}/{count}")
        assert found == [alone] * count
        # Each rank reads a sample.
        assert of_all - count == requests - 1


def test_a_group_of_objects_is_sent_whole(tcp):
    alone = _grouped()
    assert ranks(2, tcp, _grouped) == [alone] * 2


def test_the_error_of_the_rank_that_lists_is_the_error_of_all(server, tcp):
    server.fail(FAULTS["denied"], when=Match(verb="list", times=None))
    found, requests = _requests(server, _listed, 3, tcp)
    assert len({(type(each), str(each)) for each in found}) == 1
    assert isinstance(found[0], ps.errors.Denied)
    assert requests <= 2


def _missing():
    return ps.Catalog.scan("s3://bucket/nothing/")


def test_an_empty_prefix_is_not_found_on_all_ranks(tcp):
    assert [type(each) for each in ranks(2, tcp, _missing)] == [NotFound] * 2


def _in_turn():
    """Add an object between the two calls."""
    first = len(ps.Catalog.scan("s3://bucket/turn/", allow_empty=True))
    dist.barrier()
    if dist.get_rank() == 0:
        with ps.open(f"s3://bucket/turn/{first}", "wb") as file:
            file.write(b"x")
    dist.barrier()
    return first, len(ps.Catalog.scan("s3://bucket/turn/"))


def test_the_second_call_lists_again(tcp):
    assert ranks(3, tcp, _in_turn) == [(0, 1)] * 3


def _each_its_own():
    rank = dist.get_rank()
    return (
        len(ps.Catalog.scan(f"s3://bucket/train/{rank}/")),
        len(ps.Catalog.scan("s3://bucket/train/", share=False)),
        len(ps.Catalog.scan("s3://bucket/train/", exclude="**" if rank else (), allow_empty=True)),
    )


def test_calls_with_other_arguments_are_not_shared_and_share_false_lists_alone(tcp):
    assert ranks(2, tcp, _each_its_own) == [(500, OBJECTS, OBJECTS), (500, OBJECTS, 0)]


def _never_comes():
    """Rank 1 makes no call, and nobody waits for it."""
    return len(ps.Catalog.scan("s3://bucket/train/")) if dist.get_rank() == 0 else None


def test_a_rank_that_makes_no_call_is_not_waited_for(tcp):
    assert ranks(2, tcp, _never_comes) == [OBJECTS, None]


def _dies(how):
    """Let the rank that was chosen be gone before it sends anything; the other hears of it by its silence."""
    shared._SILENT_S = 2.0
    pids = [0, 0]
    dist.all_gather_object(pids, os.getpid())

    def make():
        dist.barrier()
        if how != "interrupt":
            os.kill(os.getpid(), how)
        raise KeyboardInterrupt

    if dist.get_rank() == 1:
        try:
            return share_result("this", (), make, str.encode, bytes.decode)
        except KeyboardInterrupt:
            return "interrupted"
    # After the other has begun; the store is of this process.
    dist.barrier()
    found = share_result("this", (), lambda: "alone", str.encode, bytes.decode)
    if how == signal.SIGSTOP:
        os.kill(pids[1], signal.SIGCONT)
    return found


@pytest.mark.parametrize("how", ["interrupt", signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_finds_for_itself_if_the_chosen_one_is_interrupted_killed_or_stopped(tcp, how):
    last = None if how == signal.SIGKILL else "interrupted"
    assert ranks(2, tcp, _dies, how) == ["alone", last]


def _large():
    """Send more than a piece, and refuse more than the limit."""
    shared._PIECE_BYTES, shared._MOST_BYTES = 1000, 40_000
    noise = [os.urandom(size) for size in (0, 1, 999, 1000, 1001, 30_000)]
    fit = [share_result(f"{number}", (), lambda each=each: each, bytes, bytes) for number, each in enumerate(noise)]
    over = share_result("over", (), lambda: os.urandom(50_000), bytes, bytes)
    return b"".join(fit), len(fit[-1]), over


def test_results_come_in_pieces_and_one_beyond_the_limit_is_found_by_each(init_method):
    (first, size, alone), (second, _, other) = ranks(2, init_method, _large)
    assert first == second
    assert size == 30_000
    assert alone != other


def _in_a_child():
    ours, theirs = os.pipe()
    with forked(lambda: os.write(theirs, str(share_result("child", (), os.getpid, str, int)).encode())) as status:
        assert status() == 0
    return int(os.read(ours, 20))


def test_a_forked_child_of_a_rank_finds_for_itself(tcp):
    first, second = ranks(2, tcp, _in_a_child)
    assert first != second


def test_without_a_group_the_result_is_found_at_once():
    assert share_result("alone", (), lambda: 7, str, int) == 7


def _fails_to_encode():
    def encode(_value):
        raise Unusable("cannot be saved")

    return share_result("odd", (), os.getpid, encode, int)


def test_a_result_that_cannot_be_sent_is_found_by_each(tcp):
    first, second = ranks(2, tcp, _fails_to_encode)
    assert first != second


@pytest.mark.parametrize(
    ("url", "own"),
    [
        ("s3://bucket/a", False),
        ("gs://bucket/a", False),
        ("https://example.org/a", False),
        ("/data/a", True),
        ("file:///data/a", True),
        ("memory://shelf/a", True),
    ],
)
def test_stores_of_one_machine_or_process_are_not_shared(url, own):
    assert is_own([url]) is own


def test_no_url_is_not_shared():
    assert is_own([])


def first_folder(key):
    return key.split("/")[0]


def _named():
    return len(ps.Catalog.scan("s3://bucket/train/", labels=first_folder).classes)


def test_calls_with_a_function_of_a_module_are_shared(server, tcp):
    found, requests = _requests(server, _named, 3, tcp)
    assert found == [5] * 3
    assert requests <= 4


def _own_classes():
    mine = str(dist.get_rank())
    return ps.Catalog.scan("s3://bucket/train/", labels=lambda key: mine if key.startswith("0") else "rest").classes


def test_functions_that_hold_values_of_their_rank_are_called_on_that_rank(tcp):
    assert ranks(2, tcp, _own_classes) == [("0", "rest"), ("1", "rest")]
