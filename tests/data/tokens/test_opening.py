"""Token files are found by prefix, glob and list, paired with their indexes, and refused where they do not fit."""

import numpy as np
import pytest

import penstock as ps
from penstock import events
from penstock.data.tokens.opening import Manner, open_files
from penstock.errors import Changed, ConfigError, Damaged, InvalidURL, NotFound, Unusable
from tests.data.tokens.files import index, llmc, megatron
from tests.servers.moto import moto

DOCUMENTS = [[[1, 2, 3], [4]], [], [[5, 6, 7, 8, 9]]]


@pytest.fixture
def folder(tmp_path):
    for name in ("a", "b", "größe 1"):
        data, idx = megatron(DOCUMENTS)
        (tmp_path / f"{name}.bin").write_bytes(data)
        (tmp_path / f"{name}.idx").write_bytes(idx)
    (tmp_path / "notes.txt").write_text("no tokens")
    return tmp_path


def found(urls, format=None, dtype=None, units="tokens"):  # noqa: A002  the field's word
    return open_files(urls, Manner.checked(format, dtype, units), None)


def names(files):
    return [key.rpartition("/")[2] for key in files.keys]


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        ("{}/", "a b größe"),
        ("{}/*.bin", "a b größe"),
        ("{}/*.idx", "a b größe"),
        ("{}/a.bin", "a"),
        ("{}/a.idx", "a"),
        ("{}/{{b,a}}.bin", "b a"),
        (["{}/größe 1.idx", "{}/a.bin"], "größe a"),
        (["{}/b.bin", "{}/b.idx", "{}/a.idx"], "b a"),
        ("{}/a", "a"),
    ],
)
@pytest.mark.parametrize("units", ["tokens", "documents"])
def test_pairs_may_be_named_in_several_ways(folder, urls, expected, units):
    given = urls.format(folder) if isinstance(urls, str) else [each.format(folder) for each in urls]
    files = found(given, units=units)
    assert [each.removesuffix(" 1.bin").removesuffix(".bin") for each in names(files)] == expected.split()
    assert files.dtype == np.uint16
    assert [sizes.tolist() for _, sizes in files.units] == [[18] if units == "tokens" else [8, 0, 10]] * len(files.keys)


def test_files_of_several_formats_are_one_dataset(folder):
    (folder / "c.bin").write_bytes(llmc(range(7)))
    np.save(folder / "d.npy", np.arange(5, dtype="u2"))
    np.arange(6, dtype="u2").tofile(folder / "e.ds")
    files = found(f"{folder}/", dtype="uint16")
    assert names(files) == ["a.bin", "b.bin", "c.bin", "d.npy", "e.ds", "größe 1.bin"]
    places = [(begins.tolist(), sizes.tolist()) for begins, sizes in files.units]
    assert places[2:5] == [([1024], [14]), ([128], [10]), ([0], [12])]


def test_bare_tokens_may_have_any_name(folder):
    np.arange(6, dtype="u2").tofile(folder / "c.tar")
    np.arange(6, dtype="u2").tofile(folder / "c.tokens")
    assert found([folder / "c.tar", folder / "c.tokens"], "raw", "uint16").units[1][1].tolist() == [12]
    assert found([folder / "c.tokens"], None, "uint16").units[0][1].tolist() == [12]


@pytest.mark.parametrize("urls", [None, 5, 2.5])
def test_urls_of_another_type_are_refused(urls):
    with pytest.raises(Unusable, match=f"urls must be a URL or a list of URLs, got {urls}"):
        found(urls)


def test_raw_format_ignores_indexes(folder):
    files = found(f"{folder}/", "raw", "uint16")
    assert names(files) == ["a.bin", "b.bin", "größe 1.bin"]
    with pytest.raises(NotFound, match="only indexes"):
        found(f"{folder}/a.idx", "raw", "uint16")


@pytest.mark.parametrize(
    ("urls", "options", "error", "says"),
    [
        ("{}/none/", {}, NotFound, "no objects there"),
        ("{}/notes", {}, NotFound, r"none of the 1 objects is a shard \(.bin"),
        ("{}/notes*", {"dtype": "uint16"}, Damaged, "9 bytes are not a whole number"),
        (["{}/a.bin", "{}/z.bin"], {}, NotFound, "z.bin"),
        (["{}/a.bin", "s3://bucket/a.bin"], {}, InvalidURL, "not in"),
        ("{}/", {"format": "mega"}, Unusable, "format must be one of 'megatron'"),
        ("{}/", {"format": "raw"}, Unusable, "pass dtype='uint16'"),
        ("{}/", {"format": "raw", "dtype": "uint16", "units": "documents"}, Unusable, "'raw' files have no index"),
        ("{}/", {"format": "llmc"}, Damaged, "no header of llm.c.*a.bin"),
        ("{}/", {"dtype": "uint32"}, Unusable, "uint16 tokens, not uint32: leave dtype= out"),
        (["{}/a.bin", "{}/lines.jsonl"], {}, Unusable, "MapDataset.from_shards reads it, or pass format='raw'.*lines"),
        (["{}/a.bin.gz"], {"dtype": "uint8"}, Unusable, r"belongs to another format: unpack it, or .*a\.bin\.gz"),
        ("{}/lines.jsonl", {}, NotFound, r"\(.bin, .npy, .ds, .idx\): ps.MapDataset.from_shards reads it"),
        ("{}/notes.txt", {}, NotFound, "in a file of another name, pass a list of URLs"),
        ("{}/c.npy", {"format": "megatron"}, NotFound, "format='megatron' needs it; leave that out"),
        ("{}/", {"dtype": "float32"}, Unusable, "dtype must be one of"),
    ],
)
def test_unreadable_files_and_wrong_arguments_are_refused(folder, urls, options, error, says):
    (folder / "lines.jsonl").write_text('{"text": "no tokens"}\n')
    (folder / "a.bin.gz").write_bytes(bytes(40))
    np.save(folder / "c.npy", np.arange(5, dtype="u2"))
    given = urls.format(folder) if isinstance(urls, str) else [each.format(folder) for each in urls]
    with pytest.raises((error, ConfigError) if error is InvalidURL else error, match=says):
        found(given, **options)


def test_missing_half_of_a_pair_is_named(folder):
    (folder / "a.bin").unlink()
    for urls in (f"{folder}/", f"{folder}/*.idx", [f"{folder}/a.idx"]):
        with pytest.raises(NotFound, match=r"the index exists, but its .bin does not.*a\.bin"):
            found(urls)
    (folder / "b.idx").unlink()
    for urls in (f"{folder}/b", f"{folder}/b*.bin", [f"{folder}/b.bin"]):
        with pytest.raises(NotFound, match=r"this file has no Megatron index \(.idx\).*b\.bin"):
            found(urls, units="documents")
        with pytest.raises(NotFound, match=r"no Megatron index"):
            found(urls, "megatron")
        assert names(found(urls, dtype="uint16")) == ["b.bin"]


@pytest.mark.parametrize("units", ["tokens", "documents"])
@pytest.mark.parametrize("change", [-2, 2, -18])
def test_file_of_another_size_than_its_index_says_is_refused(folder, units, change):
    data = (folder / "b.bin").read_bytes()
    (folder / "b.bin").write_bytes((data + data)[: len(data) + change])
    with pytest.raises(Damaged, match=rf"has {18 + change} bytes, and its index \(.idx\) accounts for 18.*b\.bin"):
        found(f"{folder}/", units=units)


def test_hostile_index_names_its_file(folder):
    (folder / "b.idx").write_bytes(index([3, -1], [0, 6], [0, 2]))
    with pytest.raises(Damaged, match=r"-1 tokens.*b\.idx"):
        found(f"{folder}/", units="sequences")


def test_file_beside_a_foreign_idx_is_not_read_as_raw(folder):
    (folder / "b.idx").write_bytes(b"another program's index of forty bytes..")
    with pytest.raises(Damaged, match=r"not an index of Megatron: to read without it pass format='raw'.*b\.idx"):
        found(f"{folder}/", dtype="uint16")


def test_types_differ(folder):
    data, idx = megatron(DOCUMENTS, "i4")
    (folder / "b.bin").write_bytes(data)
    (folder / "b.idx").write_bytes(idx)
    with pytest.raises(Unusable, match=r"int32 tokens, others uint16: make two datasets.*b\.bin"):
        found(f"{folder}/")


def test_index_is_pinned_to_the_version_that_was_listed(folder):
    whole = (folder / "a.idx").read_bytes()

    def replace(event):
        if isinstance(event, events.OperationEnded) and event.kind == "list":
            (folder / "a.idx").write_bytes(whole + b"1")

    stop = events.subscribe(replace)
    try:
        with pytest.raises(Changed, match=r"a\.idx"):
            found(f"{folder}/")
    finally:
        stop()


def test_each_index_is_read_once_and_files_of_a_listing_take_no_request(monkeypatch):
    ended = []
    with moto() as server:
        client = server.client()
        client.create_bucket(Bucket="bucket")
        for number in range(40):
            for end, body in zip(("bin", "idx"), megatron(DOCUMENTS), strict=True):
                client.put_object(Bucket="bucket", Key=f"t/{number:02}.{end}", Body=body)
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        stop = events.subscribe(lambda each: ended.append(each) if isinstance(each, events.RequestEnded) else None)
        try:
            assert len(found("s3://bucket/t/").keys) == 40
            listed = len(ended)
            assert len(found("s3://bucket/t/", "raw", "uint16").keys) == 40
            raw = len(ended) - listed
            assert len(found(["s3://bucket/t/07.bin", "s3://bucket/t/09.idx"], units="documents").keys) == 2
        finally:
            stop()
    assert (listed, raw, len(ended) - listed - raw) == (1 + 40, 1, 2 + 2 + 2)


def datatrove(folder, name, documents, dtype="<u2"):
    """Write documents as ``TokenizedFile`` of datatrove does: their tokens, and the end of each in tokens."""
    (folder / f"{name}.ds").write_bytes(b"".join(np.asarray(each, dtype).tobytes() for each in documents))
    (folder / f"{name}.ds.index").write_bytes(np.cumsum([len(each) for each in documents]).astype("<u8").tobytes())
    (folder / f"{name}.ds.metadata").write_text("gpt2")


@pytest.mark.parametrize("dtype", ["<u2", "<u4"])
def test_documents_of_datatrove_are_those_of_its_index(tmp_path, dtype):
    draw = np.random.default_rng(3)
    documents = [draw.integers(0, 60_000, size).tolist() for size in (5, 0, 300, 1, 41, 80)]
    datatrove(tmp_path, "0_00000_shuffled", documents[:4], dtype)
    datatrove(tmp_path, "0_00001_shuffled", documents[4:], dtype)
    for urls in (f"{tmp_path}/", f"{tmp_path}/*.ds", [f"{tmp_path}/0_0000{at}_shuffled.ds" for at in (0, 1)]):
        dataset = ps.TokenDataset.from_shards(urls, length=None, documents=True)
        assert [each.tolist() for each in dataset] == documents
        assert dataset.dtype == np.dtype(dtype)
        windows = ps.TokenDataset.from_shards(urls, length=40, documents=True)
        assert [each.tolist() for each in windows] == [
            each[at : at + 40] for each in documents for at in range(0, len(each) - 39, 40)
        ]
    assert len(ps.TokenDataset.from_shards(f"{tmp_path}/", length=61, dtype=dtype)) == 5 + 1


@pytest.mark.parametrize(
    ("index", "options", "error", "says"),
    [
        ([2, 5, 4, 9], {}, Damaged, "document 2 of the index ends at token 4, before it begins: 5"),
        ([2, 5, 8], {}, Damaged, "accounts for 8 tokens, which have 2 or 4 bytes"),
        ([2, 5, 18], {}, Damaged, "accounts for 18 tokens, which have 2 or 4 bytes"),
        ([2, 9], {"dtype": "uint32"}, Damaged, "accounts for 9 tokens of type uint32"),
        ([2**63, 9], {}, Damaged, "beyond any file"),
        ([2, 9], {"format": "raw"}, Unusable, r"\.ds\.index have"),
        ([2, 9], {"documents": False}, NotFound, "documents, not sequences"),
        (None, {}, NotFound, r"no index of datatrove \(\.ds\.index\)"),
        ("odd", {}, Damaged, "8 bytes for each document"),
    ],
)
def test_wrong_indexes_of_datatrove_are_refused(tmp_path, index, options, error, says):
    (tmp_path / "a.ds").write_bytes(bytes(18))
    if index is not None:
        data = b"odd" if index == "odd" else np.array(index, "<u8").tobytes()
        (tmp_path / "a.ds.index").write_bytes(data)
    with pytest.raises(error, match=says):
        ps.TokenDataset.from_shards(f"{tmp_path}/", **{"length": None, "documents": True, **options})


def test_files_beside_those_of_datatrove_are_not_read_as_tokens(tmp_path):
    datatrove(tmp_path, "a", [[1, 2], [3, 4]])
    for urls in ([tmp_path / "a.ds", tmp_path / "a.ds.index"], f"{tmp_path}/a.ds*"):
        try:
            assert ps.TokenDataset.from_shards(urls, length=1, dtype="uint16").tokens == 4
        except Unusable as error:
            assert "name the .ds" in error.message  # noqa: PT017  either will do, other tokens will not
