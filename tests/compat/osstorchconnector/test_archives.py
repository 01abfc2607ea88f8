"""Each file of a tar archive is an item with the key, label and bytes that osstorchconnector 1.2.3 gives."""

from __future__ import annotations

import io
import tarfile
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch.utils.data import DataLoader

from penstock.compat.osstorchconnector import OssIterableDataset, OssMapDataset
from penstock.errors import Damaged, NotFound, Unsupported, Unusable

TAR, INDEX = "oss://bucket/tars/a.tar", "oss://bucket/tars/a.idx"
LONG = "x" * 120 + ".txt"
# As a run of osstorchconnector 1.2.3 over this archive printed them: key, label and bytes of each item.
ITEMS = [
    ("dir/a.jpg", "0", b"aaa"),
    ("b.b.png", "1", b"bb"),
    ("empty", "2", b""),
    ("noext", "3", b"x" * 700),
    (LONG, "4", b"long"),
    ("__meta__/x.y", "5", b"m"),
    ("dir/a.jpg", "6", b"dup"),
]
BOTH = pytest.mark.parametrize("kind", [OssMapDataset, OssIterableDataset])


def archive(*files, links=()):
    """Return a GNU tar file with a folder, ``files`` (name and bytes) and ``links``."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        folder = tarfile.TarInfo("dir")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name in links:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.LNKTYPE, "empty"
            tar.addfile(member)
    return out.getvalue()


FILES = [("./b.b.png" if name == "b.b.png" else name, data) for name, _, data in ITEMS]
MANY = [(f"{number:04}.bin", bytes([number % 251]) * (number % 90)) for number in range(1000)]


@pytest.fixture(scope="module", autouse=True)
def _archives(server):
    server.put("bucket", "tars/a.tar", archive(*FILES))
    server.put("bucket", "tars/no suffix", archive(*FILES))
    server.put("bucket", "tars/linked.tar", archive(*FILES, links=["link"]))
    server.put("bucket", "tars/empty.tar", archive())
    server.put("bucket", "tars/other.tar", b"no archive" * 100)
    server.put("bucket", "tars/many.tar", archive(*MANY))


def described(item):
    assert item.size == len(item.getvalue())
    return item.key, item.label, item.read()


def test_the_archive_of_these_tests_has_the_files_that_python_reads():
    with tarfile.open(fileobj=io.BytesIO(archive(*FILES))) as tar:
        names = [member.name for member in tar if member.isreg()]
    assert [name.removeprefix("./") for name in names] == [name for name, *_ in ITEMS]


@BOTH
@pytest.mark.parametrize("uri", [TAR, "/bucket/tars/a.tar", "oss://bucket/tars/no suffix"])
@pytest.mark.parametrize("index", [INDEX, ""])
def test_each_file_is_an_item(kind, uri, index, arguments):
    dataset = kind.from_tar(uri, index, **arguments)
    for _ in range(2):
        assert [described(item) for item in dataset] == ITEMS


def test_files_are_read_by_number_and_in_batches(arguments):
    dataset = OssMapDataset.from_tar(TAR, INDEX, transform=described, **arguments)
    assert len(dataset) == 7
    assert dataset[3] == ITEMS[3]
    assert dataset.__getitems__([2, 0]) == [ITEMS[2], ITEMS[0]]
    assert [dataset.is_continuous(each) for each in ([1, 2, 3], [1, 3], [5], [])] == [True, False, True, True]
    with pytest.raises(IndexError):
        dataset[7]


def test_neighbours_of_an_iterable_dataset_are_read_in_one_request(server, arguments):
    dataset = OssIterableDataset.from_tar("oss://bucket/tars/many.tar", INDEX, **arguments)
    before = len(server.seen("get", "bucket", "tars/many.tar"))
    assert sum(1 for _ in dataset) == 1000
    assert len(server.seen("get", "bucket", "tars/many.tar")) - before <= 2


@BOTH
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_workers_share_the_files_out(kind, method, arguments):
    dataset = kind.from_tar(TAR, INDEX, transform=described, **arguments)
    loader = DataLoader(dataset, batch_size=2, num_workers=2, multiprocessing_context=method, collate_fn=list)
    assert sorted(item for batch in loader for item in batch) == sorted(ITEMS)


def keys(dataset):
    return [item.key for item in dataset]


def test_shuffle_yields_each_file_once_in_chunks_of_neighbours(arguments):
    torch.manual_seed(5)
    dataset = OssIterableDataset.from_tar(
        "oss://bucket/tars/many.tar", INDEX, shuffle=True, shuffle_chunk_size=100, **arguments
    )
    orders = [keys(dataset) for _ in range(3)]
    assert sorted(orders[0]) == [name for name, _ in MANY]
    assert orders[0] != orders[1] != orders[2]
    for order in orders:
        chunks = [{name[:2] for name in order[start : start + 100]} for start in range(0, 1000, 100)]
        assert all(len(chunk) == 1 for chunk in chunks)
        assert order[:100] != sorted(order[:100])


def test_shuffle_follows_torchs_generators(arguments):
    def made():
        return OssIterableDataset.from_tar("oss://bucket/tars/many.tar", INDEX, shuffle=True, **arguments)

    torch.manual_seed(3)
    first, other = made(), made()
    torch.manual_seed(3)
    again = made()
    order = keys(first)
    assert order == keys(again)
    assert order != keys(other)
    first.shuffle(torch.Generator().manual_seed(1))
    again.shuffle(generator=torch.Generator().manual_seed(1))
    assert keys(first) == keys(again) != order
    assert len(keys(ForkingPickler.loads(ForkingPickler.dumps(first)))) == 1000


def test_an_archive_in_its_own_order_is_not_shuffled_later(arguments):
    with pytest.raises(Unsupported, match=r"from_tar\(…, shuffle=True\)"):
        OssIterableDataset.from_tar(TAR, INDEX, **arguments).shuffle()


@BOTH
def test_links_absent_archives_and_wrong_uris_are_refused_by_name(kind, arguments):
    def opened(uri, index=INDEX, **more):
        return kind.from_tar(uri, index, **more, **arguments)

    with pytest.raises(Unsupported, match=r"'link' at byte .* hard link.*, skip=…\), as from_tar has no"):
        opened("oss://bucket/tars/linked.tar")
    with pytest.raises(NotFound, match="no files"):
        opened("oss://bucket/tars/empty.tar")
    with pytest.raises(NotFound, match=r"tars/none.tar"):
        opened("oss://bucket/tars/none.tar")
    with pytest.raises(Damaged, match=r"tars/other.tar"):
        opened("oss://bucket/tars/other.tar")
    with pytest.raises(ValueError, match="in the same bucket"):
        opened(TAR, "oss://another/a.idx")
    with pytest.raises(ValueError, match="tar_uri must be the URI"):
        opened("")


def test_shuffle_chunk_size_must_be_positive(arguments):
    with pytest.raises(Unusable, match="block_samples"):
        OssIterableDataset.from_tar(TAR, INDEX, shuffle=True, shuffle_chunk_size=0, **arguments)


@BOTH
def test_local_archives_are_read_without_an_endpoint(kind, tmp_path):
    (tmp_path / "a.tar").write_bytes(archive(*FILES))
    dataset = kind.from_tar(f"{tmp_path}/a.tar", f"{tmp_path}/a.idx", "")
    assert [described(item) for item in dataset] == ITEMS
