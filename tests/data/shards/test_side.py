"""Side indexes of energon and DALI find the samples that a walk finds, or are refused by name."""

import io
import json
import struct
import tarfile
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.data.shards.side import SIDES, side_key
from penstock.errors import Damaged, NotFound, Unsupported, Unusable
from penstock.testing.faults import FaultServer
from tests.data.shards.archives import tar
from tests.refusals import refused

MEMBERS = [(f"c{at % 2}/{at:03}.{end}", f"{end}{at}".encode() * at) for at in range(40) for end in ("jpg", "cls")]


def members(data):
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = [each for each in archive if each.isreg()]
        return found, archive.offset


def energon(data):
    """Return what energon writes: where the first header of each sample begins, and where the last sample ends."""
    found, end = members(data)
    starts, last = [], None
    for each in found:
        key = each.name.rpartition("/")[0] + "/" + each.name.rpartition("/")[2].partition(".")[0]
        if key != last:
            starts.append(each.offset)
            last = key
    return struct.pack(f"<{len(starts) + 1}Q", *starts, end)


def wds2idx(data):
    """Return what DALI's wds2idx writes."""
    rows, last = [], None
    for each in members(data)[0]:
        dot = each.name.find(".", each.name.rfind("/") + 1)
        key, end = each.name[:dot], each.name[dot + 1 :]
        if key != last:
            rows.append([])
            last = key
        rows[-1].append(f"{end} {each.offset_data} {each.size} {each.name}")
    return "\n".join([f"v1.2 {len(rows)}", *map(" ".join, rows), ""]).encode()


WRITE = {"energon": energon, "wds2idx": wds2idx}


@pytest.fixture(params=SIDES)
def side(request):
    return request.param


@pytest.fixture
def folder(tmp_path, side):
    for number in range(3):
        put(tmp_path / f"train-{number}.tar", side, tar(MEMBERS))
    return tmp_path


def put(path, side, data, index=None):
    path.write_bytes(data)
    (path.parent / side_key(side, path.name)).write_bytes(WRITE[side](data) if index is None else index)


def opened(folder, side, **how):
    return ps.Catalog.from_shards(f"{folder}/", index=side, **how)


def read(catalog):
    return [(each.key, [(name, each[name].read()) for name in each.fields]) for each in ps.MapDataset(catalog)]


def test_names_of_side_indexes():
    assert [side_key(each, "a.b/train-0.tar") for each in SIDES] == ["a.b/train-0.tar.idx", "a.b/train-0.idx"]


def test_samples_are_those_that_a_walk_finds(folder, side):
    catalog = opened(folder, side)
    walked = ps.Catalog.from_shards(f"{folder}/")
    assert read(catalog) == read(walked)
    assert len(catalog) == 120
    if side == "wds2idx":
        assert catalog.digest == walked.digest
        assert opened(folder, side, labels="folder", fields=("cls",)).classes == ("c0", "c1")
    indexed = ps.index(f"{folder}/", folder / "a.catalog", format="tar", index=side)
    assert indexed.digest == catalog.digest


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_long_names_folders_and_few_samples(tmp_path, side, form, count):
    long = "x" * (60 if form == tarfile.USTAR_FORMAT else 150)
    directory = tarfile.TarInfo("d")
    directory.type = tarfile.DIRTYPE
    names = [f"d/{long}{at}.{end}" for at in range(count) for end in ("jpg", "cls")]
    put(tmp_path / "a.tar", side, tar([directory, *((name, name.encode()) for name in names)], form))
    assert read(opened(tmp_path, side)) == read(ps.Catalog.from_shards(f"{tmp_path}/"))


def test_only_indexes_and_a_few_headers_are_read(side):
    with FaultServer.within() as server:
        big = tar([(f"{at:03}.jpg", b"x" * 20_000) for at in range(200)])
        server.put("bucket", "s/a.tar", big)
        server.put("bucket", f"s/{side_key(side, 'a.tar')}", WRITE[side](big))
        server.seen()
        catalog = ps.Catalog.from_shards("s3://bucket/s/", index=side, store=server.store)
        assert len(catalog) == 200
        gets = [each for each in server.seen("get", "bucket") if each.key == "s/a.tar"]
        assert 0 < len(gets) <= 8


def moved(index, side):
    """Return an index whose offsets, from the middle on, are those of a shard with a longer member."""
    if side == "energon":
        places = np.frombuffer(index, "<u8").copy()
        places[len(places) // 2 :] += 512
        return places.tobytes()
    first, *lines = index.decode().splitlines()
    rows = [line.split(" ") for line in lines]
    for row in rows[len(rows) // 2 :]:
        row[1::4] = [str(int(each) + 512) for each in row[1::4]]
    return "\n".join([first, *map(" ".join, rows)]).encode()


def damaged(kind, side):
    """Return an index that does not fit the shard of ``MEMBERS``."""
    write, index = WRITE[side], WRITE[side](tar(MEMBERS))
    return {
        "empty": lambda: b"",
        "cut": lambda: index[:-3],
        "noise": lambda: b"\xff" * 160,
        "moved": lambda: moved(index, side),
        "older": lambda: write(tar(MEMBERS[:60])),
        "newer": lambda: write(tar([*MEMBERS, ("z.jpg", b"x" * 9000)])),
        "other": lambda: write(tar([(name, each * 40) for name, each in MEMBERS[::-1]])),
        "beyond": lambda: struct.pack("<3Q", 0, 512, 1 << 40),
    }[kind]()


@pytest.mark.parametrize("kind", ["empty", "cut", "noise", "moved", "older", "newer", "other", "beyond"])
def test_index_that_does_not_fit_its_shard_is_refused_by_name(folder, side, kind):
    put(folder / "train-1.tar", side, tar(MEMBERS), damaged(kind, side))
    refused(Damaged, rf"side index \({side}\) does not fit.*index=None.*train-1\.tar", opened, folder, side)


def test_index_with_a_sample_in_two_halves_is_refused(tmp_path):
    data = tar(MEMBERS)
    halves = [each.offset for each in members(data)[0]]
    put(tmp_path / "a.tar", "energon", data, struct.pack(f"<{len(halves) + 1}Q", *halves, members(data)[1]))
    refused(Damaged, "both have the key 'c0/000'", opened, tmp_path, "energon")


def test_offset_that_was_not_compared_fails_when_it_is_read(tmp_path):
    data = tar([(f"{at:03}.jpg", b"x" * 2000) for at in range(40)])
    places = np.frombuffer(energon(data), "<u8").copy()
    places[10] += 512
    put(tmp_path / "a.tar", "energon", data, places.tobytes())
    dataset = ps.MapDataset(opened(tmp_path, "energon"))
    assert dataset[0].key == "000"
    with pytest.raises(Damaged, match=r"a\.tar"):
        dataset[10]


def link(name, kind):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, "000.jpg"
    return member


def between(number, *others):
    """Return a shard of forty samples, with other members in one that no index is compared with."""
    plain = [(f"{at:03}.{end}", b"x") for at in range(40) for end in ("jpg", "txt")]
    return tar([*plain[: 2 * number + 1], *others, *plain[2 * number + 1 :]])


@pytest.mark.parametrize(("kind", "named"), [(tarfile.LNKTYPE, "a hard link"), (tarfile.SYMTYPE, "a symbolic link")])
def test_links_inside_a_sample_are_refused_by_name_as_by_a_walk(tmp_path, side, kind, named):
    put(tmp_path / "a.tar", side, between(10, link("010.cls", kind)))
    dataset = ps.MapDataset(opened(tmp_path, side))
    assert dataset[9].fields == ("jpg", "txt")
    with pytest.raises(Unsupported, match=f"'010.cls'.* is {named}"):
        dataset[10]
    refused(Unsupported, f"'010.cls'.* is {named}", ps.Catalog.from_shards, f"{tmp_path}/")


def test_field_that_a_sample_has_twice_is_refused(tmp_path):
    put(tmp_path / "a.tar", "energon", between(10, ("010.jpg", b"another")))
    with pytest.raises(Damaged, match="'010' hold the field 'jpg' twice"):
        ps.MapDataset(opened(tmp_path, "energon"))[10]


def test_two_samples_in_one_range_are_refused_whichever_fields_are_wanted(tmp_path):
    data = tar([(f"{at:03}.{'jpg' if at == 10 else 'txt'}", b"x") for at in range(40)])
    places = np.delete(np.frombuffer(energon(data), "<u8"), 11)
    put(tmp_path / "a.tar", "energon", data, places.tobytes())
    for fields in ((), ("txt",), ("jpg",), ("jpg", "txt")):
        with pytest.raises(Damaged, match="sample '010' also hold a member of '011'"):
            ps.MapDataset(opened(tmp_path, "energon", fields=fields))[10]


def test_missing_index_is_named(folder, side):
    (folder / side_key(side, "train-1.tar")).unlink()
    refused(NotFound, r"train-1(\.tar)?\.idx", opened, folder, side)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"index": "dali"}, "index must be"),
        ({"index": "energon", "key": "last-dot"}, "key="),
        ({"index": "energon", "skip": "*.txt"}, "skip="),
        ({"index": "energon", "labels": "folder"}, "labels="),
        ({"index": "energon", "fields": ("jpg", "cls"), "missing": "drop"}, "missing="),
    ],
)
def test_arguments_that_an_index_cannot_serve_are_refused(tmp_path, how, says):
    put(tmp_path / "a.tar", "energon", tar(MEMBERS))
    refused(Unusable, says, ps.Catalog.from_shards, f"{tmp_path}/", **how)
    (tmp_path / "a.jsonl").write_text("{}\n")
    refused(Unusable, "works with tar files, not", ps.Catalog.from_shards, tmp_path / "a.jsonl", index="energon")


def wids(tmp_path, counts):
    listed = [{"url": f"https://host/x/{name}", "nsamples": count} for name, count in counts.items()]
    (tmp_path / "index.json").write_text(json.dumps({"wids_version": 1, "shardlist": listed}))
    return str(tmp_path / "index.json")


def test_counts_of_wids_are_compared_with_those_of_a_walk(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.tar").write_bytes(tar(MEMBERS))
    good = wids(tmp_path, {"0.tar": 40, "1.tar": 40})
    assert len(ps.Catalog.from_shards(f"{tmp_path}/", index=good)) == 80
    for counts, says in (({"0.tar": 40, "1.tar": 41}, "says 41 samples"), ({"0.tar": 40}, "does not name it")):
        with pytest.raises(Damaged, match=rf"{says}.*has 40.*1\.tar"):
            ps.Catalog.from_shards(f"{tmp_path}/", index=wids(tmp_path, counts))
    refused(Unusable, "counts all samples", ps.Catalog.from_shards, f"{tmp_path}/", index=good, skip="*.txt")


def test_wids_index_with_a_lost_shard_or_another_size_is_refused(tmp_path):
    (tmp_path / "0.tar").write_bytes(tar(MEMBERS))
    size = (tmp_path / "0.tar").stat().st_size
    both = wids(tmp_path, {"0.tar": 40, "1.tar": 40})
    with pytest.raises(Damaged, match=r"the index lists '1\.tar', which does not exist.*index\.json"):
        ps.Catalog.from_shards(f"{tmp_path}/", index=both)
    assert len(ps.Catalog.from_shards(f"{tmp_path}/*.tar", index=both)) == 40
    for stated in (size, size + 512):
        listed = [{"url": "0.tar", "nsamples": 40, "filesize": stated}]
        (tmp_path / "index.json").write_text(json.dumps({"shardlist": listed}))
        if stated == size:
            assert len(ps.Catalog.from_shards(f"{tmp_path}/", index=both)) == 40
    with pytest.raises(Damaged, match=rf"the index declares {size + 512} bytes for '0\.tar', which has {size}"):
        ps.Catalog.from_shards(f"{tmp_path}/", index=both)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"shardlist": [{"url": "a"}]}', '{"shardlist": 5}'])
def test_json_that_is_not_of_wids_is_refused_by_name(tmp_path, text):
    (tmp_path / "a.tar").write_bytes(tar(MEMBERS))
    (tmp_path / "index.json").write_text(text)
    with pytest.raises(Damaged, match=r"cannot read the wids index.*index\.json"):
        ps.Catalog.from_shards(f"{tmp_path}/", index=str(tmp_path / "index.json"))


def test_wids_index_that_names_a_shard_twice_is_refused(tmp_path):
    (tmp_path / "a.tar").write_bytes(tar(MEMBERS))
    listed = [{"url": f"{folder}/a.tar", "nsamples": 40} for folder in ("x", "y")]
    (tmp_path / "index.json").write_text(json.dumps({"shardlist": listed}))
    with pytest.raises(Damaged, match="differ only in their folders"):
        ps.Catalog.from_shards(f"{tmp_path}/", index=str(tmp_path / "index.json"))


def test_indexes_that_energon_wrote_find_the_samples_that_webdataset_wrote():
    golden = Path(__file__).parent / "golden" / "energon"
    catalog = ps.Catalog.from_shards(f"{golden}/*.tar", index="energon")
    samples = read(catalog)
    assert samples == read(ps.Catalog.from_shards(f"{golden}/*.tar"))
    assert [key for key, _ in samples] == [f"a/{shard}{at:03}" for shard in range(2) for at in range(6)]
    assert samples[3][1][1:] == [("cls", b"3"), ("extra.txt", b"xxx")]
