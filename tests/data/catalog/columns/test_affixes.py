"""Keys whose common texts are stored once come back as they were, travel, and are refused where they contradict."""

import io
import itertools
import pickle
import random
import tracemalloc
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog import saved
from penstock.data.catalog.catalog import make_catalog
from penstock.data.catalog.columns.column import Strings, decode, pack
from penstock.data.catalog.columns.compact import (
    AFFIX_BYTES,
    Affixed,
    Derived,
    compact,
    compact_keys,
    compress_affixes,
    derive_keys,
)
from penstock.data.catalog.columns.table import TableBuilder
from penstock.engine.listing.names import PackedEntries
from tests.refusals import refused

PIECES = st.sampled_from([b"", b"a", b"ab", b"abc", "é".encode(), b"\xff", b"/", b"0" * 300])
VALUES = st.lists(st.lists(PIECES, max_size=4).map(b"".join), min_size=1, max_size=100) | st.lists(
    st.integers(0, 10**5).map(b"train/%06d.jpg".__mod__), min_size=1, max_size=100
)


def flat(values):
    return Strings(memoryview(b"".join(values)), memoryview(np.cumsum([0, *map(len, values)], dtype=np.uint64)))


def listed(strings):
    return [strings[row] for row in range(len(strings))]


def split(ends, data):
    return [data[start:stop].tobytes() for start, stop in itertools.pairwise(ends.tolist())]


def check_all(strings, values, part):
    strings.check()
    assert listed(strings) == values
    texts = [each.decode("utf-8", "surrogateescape") for each in values]
    assert [strings.text(row) for row in range(len(values))] == texts
    assert listed(pickle.loads(pickle.dumps(strings))) == values
    rows = range(len(values))[part]
    for chosen in (rows, np.array(rows, np.int32), np.array(rows, np.uint32)):
        assert split(*strings.joined(chosen)) == values[part]
        assert strings.lengths(chosen).tolist() == [*map(len, values[part])]


@given(VALUES, st.slices(100))
def test_strings_come_back_whole_in_parts_and_after_travelling(values, part):
    check_all(compress_affixes(flat(values)), values, part)
    check_all(compress_affixes(flat(sorted(values))), sorted(values), part)


def test_keys_of_many_blocks_are_cut_at_the_same_places(monkeypatch):
    values = [b"train/%04d/%07d.%s" % (each // 100, each, b"jpg" if each % 333 else b"JPEG") for each in range(2000)]
    strings = compress_affixes(flat(values))
    monkeypatch.setattr("penstock.data.catalog.columns.compact._ROWS", 64)
    pieced = compress_affixes(flat(values))
    assert {name: each.values.tolist() for name, each in strings.parts.items()} == {
        name: each.values.tolist() for name, each in pieced.parts.items()
    }
    assert listed(pieced) == values
    assert len(pieced.parts["texts"]) < len(b"".join(values)) // 4


@given(VALUES, st.sampled_from([b".jpg", b"", b".left.jpg"]), st.sampled_from([b".json", b".j", b"", b".right.jpg"]))
def test_keys_with_another_ending_are_derived(stems, mine, theirs):
    values, others = [each + mine for each in stems], [each + theirs for each in stems]
    for origin in (compact(flat(values)), compress_affixes(flat(values))):
        found = derive_keys(origin, compact(flat(others)))
        assert found is not None
        check_all(found, others, slice(None, None, 3))
        again = pickle.loads(pickle.dumps((origin, found)))
        assert again[1].origin is again[0]


@pytest.mark.parametrize(
    ("keys", "others"),
    [
        ([b"a.jpg", b"b.jpg"], [b"a.json", b"c.json"]),
        ([b"a.jpg", b"b.png"], [b"a.json", b"b.json"]),
        ([b"a.jpg", b"b.jpg"], [b"a.json", b"b.js"]),
        ([b"a.jpg", b"b.jpg"], [b"a.json"]),
        (["ä.é".encode(), "b.é".encode()], ["ä.ê".encode(), "b.ê".encode()]),
        ([b"long.jpg", b""], [b"long.json", b"on"]),
        ([], []),
    ],
)
def test_other_keys_are_not_derived(keys, others):
    assert derive_keys(compact(flat(keys)), compact(flat(others))) is None


def test_common_texts_are_used_only_where_they_save_memory():
    assert not isinstance(pairs(1000, b"%07d".__mod__)._table.keys, Affixed)
    assert isinstance(pairs(30_000, b"%07d".__mod__)._table.keys, Affixed)
    long = [b"train/%07d.jpg" % each for each in range(30_000)]
    found = compact_keys(flat(long))
    assert isinstance(found, Affixed)
    assert listed(found) == long
    draw = random.Random(0)
    assert not isinstance(compact_keys(flat([draw.randbytes(20) for _ in range(30_000)])), Affixed)


@pytest.mark.parametrize(
    ("part", "at", "value"),
    [
        ("bases", 0, 1),
        ("bases", 1, 0),
        ("bases", 1, (1 << 64) - 1),
        ("bounds", 0, 200),
        ("bounds", 1, 1),
        ("bounds", 5, 0),
        ("bounds", 33, 255),
        ("bounds", -1, 255),
        ("bounds", -1, 0),
    ],
)
def test_bounds_that_contradict_each_other_are_refused(part, at, value):
    strings = compress_affixes(flat([b"x/%03d.jpg" % row for row in range(40)]))
    parts = {name: each.values.copy() for name, each in strings.parts.items()}
    parts[part][at] = value
    refused(ValueError, r"outside|go back", Affixed(*pack([*parts.values()])).check)


@pytest.mark.parametrize("cut", [0, 1, 2, 34, 35, 36])
def test_vectors_of_other_lengths_are_refused(cut):
    parts = [each.values for each in compress_affixes(flat([b"x/%03d.jpg" % row for row in range(40)])).parts.values()]
    refused(ValueError, r"fit|without|outside", Affixed(*pack([parts[0], parts[1][:cut], parts[2]])).check)


def test_common_text_that_a_small_file_would_repeat_is_refused():
    long = b"x" * (AFFIX_BYTES + 1)
    strings = compress_affixes(flat([long + b"%d" % (row % 10) for row in range(64)]))
    assert listed(strings)[1] == long + b"1"
    strings.check()
    size = len(long)
    bounds = np.array([size, size, *[size] * 32], np.uint32)
    forged = Affixed(*pack([np.zeros(1, np.uint64), bounds, np.full(size, 120, np.uint8)]))
    refused(ValueError, "too long", forged.check)


@pytest.mark.parametrize(
    ("cut", "ending"), [(9, b"on"), (3, "é".encode()), (1, b"x" * (AFFIX_BYTES + 1)), (AFFIX_BYTES + 1, b"")]
)
def test_derivations_that_cannot_be_are_refused(cut, ending):
    origin = compact(flat([b"a/1.jpg", b"a/22.jpg"]))
    with pytest.raises(ValueError, match="not derived"):
        Derived(origin, *pack([np.array([cut], np.uint32), np.frombuffer(ending, np.uint8)])).check()
    refused(ValueError, "not derived", Derived, origin, *pack([np.array([1, 2], np.uint32), np.zeros(0, np.uint8)]))
    with pytest.raises(ValueError, match="not derived"):
        # "2.jpg" and "é.jpg" do not end with the same six bytes.
        other = compact(flat(["a/é.jpg".encode(), b"a/22.jpg"]))
        Derived(other, *pack([np.array([6], np.uint32), np.zeros(0, np.uint8)])).check()


def pairs(count, stem, ends=(b".jpg", b".json")):
    """Return a catalog of pairs as a listing gives them."""
    builder, draw = TableBuilder(), random.Random(0)
    keys = [each + end for each in map(stem, range(count)) for end in ends]
    etags = [f"{draw.getrandbits(128):032x}" for _ in keys]
    builder.add_all(PackedEntries.of(map(decode, keys), [draw.randrange(100, 300_000) for _ in keys], etags))
    return make_catalog("s3://bucket/", "", builder.freeze()).with_groups("stem")


def held_bytes(catalog):
    """Return the bytes of all memory that a catalog's table holds."""
    table, regions = catalog._table, {}
    for each in [table, *(part.table for part in table.group.parts.values())]:
        columns = [each.keys.parts, each.etags.parts, each.labels.parts, {"sizes": each.sizes}]
        for numbers in (numbers for parts in columns for numbers in parts.values()):
            regions[id(numbers.region or numbers)] = (
                numbers.values.nbytes if numbers.region is None else len(numbers.region.view)
            )
    return sum(regions.values())


@pytest.mark.parametrize(
    "stem",
    [
        b"train/%07d".__mod__,
        lambda at: b"datasets/laion-12m/2024-11-03/shards/%05d/%09d" % (at // 1000, at),
        lambda at: b"imagenet/train/n%08d/n%08d_%05d" % (at // 1300, at // 1300, at % 1300),
    ],
    ids=["short", "long", "imagenet"],
)
def test_a_pair_takes_less_than_60_bytes(stem):
    catalog = pairs(50_000, stem)
    assert held_bytes(catalog) < 60 * 50_000
    assert isinstance(catalog.parts[1].table.keys, Derived)
    some = range(0, 50_000, 997)
    found = [[span.key.encode() for span in spans] for spans in catalog.members(some)]
    assert found == [[stem(at) + b".jpg", stem(at) + b".json"] for at in some]


def test_parts_sums_and_files_keep_stems_once():
    whole = pairs(12_000, b"train/%07d".__mod__)
    for catalog in (whole, whole[::3], whole[[5, 2, 11_999]], whole[:4000] + whole[6000:]):
        url = f"memory://affixes/{uuid.uuid4()}.catalog"
        catalog.save(url)
        opened = ps.Catalog.open(url, root="s3://bucket/")
        assert isinstance(opened.parts[1].table.keys, Derived)
        assert opened.digest == catalog.digest
        assert [*opened.members(range(len(opened)))] == [*catalog.members(range(len(catalog)))]
        travelled = pickle.loads(pickle.dumps(opened))
        assert [*travelled.members(range(len(opened)))] == [*catalog.members(range(len(catalog)))]
        assert travelled.parts[1].table.keys.origin is travelled.parts[0].table.keys


def test_long_common_texts_take_little_memory_while_a_file_is_read():
    catalog = pairs(60_000, lambda at: b"x" * 500 + b"%07d" % at)
    assert isinstance(catalog.parts[1].table.keys, Derived)
    file = io.BytesIO()
    saved.save(file, saved.Saved(catalog.root, catalog.base, catalog.digest, catalog._table))
    assert len(file.getvalue()) < 5 << 20
    tracemalloc.start()
    try:
        opened = saved.load(_Readable(file.getvalue()))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert opened.table.keys[59_999].endswith(b"0059999.jpg")
    assert peak < 64 << 20


def test_file_whose_keys_are_derived_from_none_is_refused():
    table = pairs(40, b"%03d".__mod__)._table
    alone = table.group.parts["json"].table
    file = io.BytesIO()
    saved.save(file, saved.Saved("s3://bucket/", "", "", alone))
    refused(ps.errors.ManifestError, "keys cannot consist of", saved.load, _Readable(file.getvalue()))


class _Readable(io.BytesIO):
    @property
    def size(self):
        return len(self.getbuffer())


def test_a_group_without_a_lead_has_whole_keys_in_a_file():
    catalog = pairs(40, b"%03d".__mod__)
    table = catalog._table
    group = table.group.spread(catalog.root, catalog.base, table)
    other = table.having(group=group, keys=compact(table.keys))
    assert not isinstance(group.settled(other.keys).parts["json"].table.keys, Derived)
    assert isinstance(group.settled(table.keys).parts["json"].table.keys, Derived)
