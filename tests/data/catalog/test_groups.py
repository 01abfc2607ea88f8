"""Objects form samples: exactly the members that their names say, or an error that names a key."""

import pickle
import re
import uuid

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.data.catalog.groups import KeyIndex, number_keys
from penstock.errors import ManifestError, NotFound, StateMismatch, Unusable
from tests.amounts import examples
from tests.data.catalog.large import added_bytes, objects
from tests.data.catalog.test_saved import _parts, _put, _sealed
from tests.refusals import refused

ROOT = "memory://bucket/"


def catalog(*names, base="train/"):
    return Catalog.build(ROOT, base, [Entry(base + name, len(name), etag=f"e{name}") for name in names])


def members(found):
    """Return what a catalog shows: for each sample its key, and the names of its members by field."""
    base = [(part.root, len(part.base)) for part in found.parts]
    spans = found.members(range(len(found)))
    return [
        (found.key(at), {
            field: span and (root, span.key[skip:], span.stop, span.etag)
            for field, span, (root, skip) in zip(found.fields, each, base, strict=True)
        })
        for at, each in enumerate(spans)
    ]  # fmt: skip


def one(name, root=ROOT):
    return root, name, len(name), f"e{name}"


STEMS = {
    "a.jpg": ("a", "jpg"),
    "a.JSON": ("a", "json"),
    "b/a.jpg": ("b/a", "jpg"),
    "b/a.cls.txt": ("b/a", "cls.txt"),
    "Track 2.0 (Clean).mp3": ("Track 2", "0 (clean).mp3"),
}


@pytest.mark.parametrize("name", STEMS)
def test_stem_is_webdatasets_rule(name):
    key, field = STEMS[name]
    assert members(catalog(name).with_groups("stem")) == [(key, {field: one(name)})]


def test_folder_is_the_key_and_the_rest_the_field():
    found = catalog("e/1/image.png", "e/1/pose.npy", "e/2/image.png", "e/2/pose.npy").with_groups("folder")
    assert members(found)[1] == ("e/2", {"image.png": one("e/2/image.png"), "pose.npy": one("e/2/pose.npy")})


def test_pattern_and_function_give_key_and_field():
    names = "x/1_a.bin", "y/1_b.bin", "x/2_a.bin", "y/2_b.bin"
    expected = [("1", {"a": one(names[0]), "b": one(names[1])}), ("2", {"a": one(names[2]), "b": one(names[3])})]
    by_pattern = catalog(*names).with_groups(r"[xy]/(?P<key>\d)_(?P<field>\w)\.bin")
    by_function = catalog(*names, "z").with_groups(lambda name: None if name == "z" else (name[2], name[4]))
    assert members(by_pattern) == members(by_function) == expected


def test_chosen_fields_lead_in_their_order_and_leave_others_out():
    found = catalog("a.jpg", "a.json", "a.txt", "README.md").with_groups("stem", fields=("txt", "jpg"))
    assert members(found) == [("a", {"txt": one("a.txt"), "jpg": one("a.jpg")})]
    assert found[0].key == "train/a.txt"


LACKING = ("a.jpg", "a.json", "b.json", "c.jpg", "d.jpg", "d.json")


def test_lacking_field_is_an_error_that_names_the_key_and_the_number():
    with pytest.raises(Unusable, match=r"2 of 4 samples lack a field: 'b' has no 'jpg', only json"):
        catalog(*LACKING).with_groups("stem")


def test_sample_that_lacks_a_field_is_dropped():
    found = catalog(*LACKING).with_groups("stem", missing="drop")
    assert [key for key, _ in members(found)] == ["a", "d"]


def test_sample_without_a_field_stays_with_missing_none():
    found = catalog(*LACKING).with_groups("stem", missing="none")
    assert [(key, [*map(bool, each.values())]) for key, each in members(found)] == [
        ("a", [True, True]), ("b", [False, True]), ("c", [True, False]), ("d", [True, True])
    ]  # fmt: skip
    assert found.sizes.tolist() == [11, 6, 5, 11]


@pytest.mark.parametrize(
    ("names", "arguments", "match"),
    [
        (("a.jpg", "a.JPG"), {}, r"sample 'a' has the field 'jpg' twice: 'train/a.jpg' and 'train/a.JPG' \(1 samples"),
        (("a.jpg", "LICENSE"), {}, r"1 objects have no key and field by group='stem': 'LICENSE'"),
        (("a.jpg",), {"group": "folder"}, r"no key and field by group='folder': 'a.jpg'"),
        (("a.jpg",), {"group": "(?P<key>.*)"}, r"with the groups \(\?P<key>…\) and \(\?P<field>…\)"),
        (("a.jpg",), {"group": "("}, r"group must be .* a rule or a regular expression"),
        (("a.jpg",), {"group": 5}, "a regular expression with the groups key and field, or a function, got 5"),
        (("a.jpg",), {"group": lambda name: name}, r"must return \(key, field\)"),
        (("a.jpg",), {"group": lambda name: name / 0}, r"function group= fails for 'a\.jpg': TypeError"),
        (("a.jpg",), {"group": lambda _: None, "missing": "drop"}, "group must return a key"),
        (("a.jpg", "a.txt"), {"fields": ("jgp",)}, "some of those that occur, 'jpg', 'txt'"),
        (("a.jpg",), {"fields": "jpg"}, "names of several fields"),
        (("a.jpg",), {"fields": ()}, "must be different names"),
        (("a.jpg",), {"fields": ("jpg", "jpg")}, "must be different names"),
        (("a.jpg",), {"missing": "ignore"}, "'error', 'drop' or 'none', got 'ignore'"),
    ],
)
def test_misuse_is_refused(names, arguments, match):
    refused(Unusable, match, catalog(*names).with_groups, **{"group": "stem"} | arguments)


@pytest.mark.parametrize(("missing", "fields"), [("drop", ("jpg", "jsn")), ("none", ("jgp", "jsn"))])
def test_scan_without_a_sample_is_refused(tmp_path, missing, fields):
    (tmp_path / "a.jpg").write_bytes(b"x")
    how = {"group": "stem", "fields": fields, "missing": missing}
    refused(NotFound, f"'{fields[0]}' and 'jsn', with missing='{missing}'", Catalog.scan, tmp_path, **how)
    assert len(Catalog.scan(tmp_path, allow_empty=True, **how)) == 0


def test_scan_refuses_fields_without_a_group():
    refused(Unusable, "pass group=", Catalog.scan, "s3://nowhere/", fields=("jpg", "json"))


def test_too_many_fields_are_refused():
    refused(Unusable, "more than 1024 fields", catalog(*(f"f/{at}" for at in range(1025))).with_groups, "folder")


def test_groups_of_groups_are_refused():
    found = catalog("a.jpg", "a.json").with_groups("stem")
    refused(Unusable, "consist of several objects already", found.with_groups, "stem")
    refused(Unusable, "whose samples are single entries", Catalog.join, {"a": found, "b": found})
    refused(Unusable, "cannot be refreshed", found.refresh)


_names = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.sampled_from(("jpg", "json", "txt"))), unique=True, max_size=24
)


@given(_names, st.sampled_from(("drop", "none")), st.data())
@settings(max_examples=examples(150))
def test_any_grouping_selection_sum_and_file_shows_the_members(pairs, missing, data):
    names = [f"{key}.{field}" for key, field in pairs]
    fields = ("json", "jpg")
    expected = {}
    for key, field in pairs:
        if field in fields:
            expected.setdefault(key, dict.fromkeys(fields))[field] = one(f"{key}.{field}")
    expected = [each for each in expected.items() if missing == "none" or None not in each[1].values()]
    found = catalog(*names).with_groups("stem", fields=fields, missing=missing)
    assert members(found) == expected
    assert found.sizes.tolist() == [sum(one[2] for one in each.values() if one) for _, each in expected]
    rows = data.draw(st.lists(st.integers(0, max(len(expected) - 1, 0)), max_size=5)) if expected else []
    some, every = found[rows], found[::-1]
    assert members(some) == [expected[row] for row in rows]
    both = some + every
    assert members(both) == [expected[row] for row in rows] + expected[::-1]
    other = catalog("z.json", "z.jpg").with_groups("stem", fields=fields)
    more = both + other
    assert members(more) == members(both) + members(other)
    url = f"memory://bucket/{uuid.uuid4().hex}"
    more.save(url)
    opened = Catalog.open(url)
    assert members(opened) == members(more)
    assert opened.digest == more.digest
    assert members(pickle.loads(pickle.dumps(more))) == members(more)
    moved = Catalog.open(url, root="memory://elsewhere/copies/")
    assert [key for key, _ in members(moved)] == [key for key, _ in members(more)]
    assert moved.digest == more.digest
    assert {part.root + part.base for part in moved.parts} <= {"memory://elsewhere/copies/"}


def test_filter_split_and_labels_follow_the_lead():
    names = [f"{folder}/{at}.{end}" for folder in "xy" for at in range(10) for end in ("jpg", "json")]
    found = catalog(*names).with_groups("stem").with_labels("folder").with_columns(at=[*range(20)])
    assert found.classes == ("x", "y")
    assert members(found.filter(include="x/*"))[3] == ("x/3", {"jpg": one("x/3.jpg"), "json": one("x/3.json")})
    assert found.filter(labels="y").columns["at"].tolist() == [*range(10, 20)]
    # The bytes of both objects count.
    assert len(found.filter(size=(15, 15))) == 20
    parts = found.split(0.5, by="label")
    assert sorted(key for part in parts for key, _ in members(part)) == sorted(key for key, _ in members(found))
    for part in parts:
        assert all(each["jpg"][1][:-4] == each["json"][1][:-5] == key for key, each in members(part))


def test_digest_depends_on_every_member():
    plain = catalog("a.jpg", "a.json").with_groups("stem")
    assert plain.digest == catalog("a.json", "a.jpg").with_groups("stem").digest
    entries = [Entry("train/a.jpg", 5), Entry("train/a.json", 7)]
    longer = Catalog.build(ROOT, "train/", entries).with_groups("stem")
    renamed = catalog("a.jpg", "a.json").with_groups("stem", fields=("json", "jpg"))
    lacking = catalog("a.jpg", "a.json", "b.jpg").with_groups("stem", missing="none")
    assert len({each.digest for each in (plain, longer, renamed, lacking, lacking[1:])}) == 5


def test_pair_takes_few_bytes_beyond_its_objects():
    names = [f"{at:08}.{end}" for at in range(20_000) for end in ("jpg", "json")]
    listed = catalog(*names)
    found = listed.with_groups("stem")
    one, two = (len(pickle.dumps(each)) for each in (listed, found))
    assert two - one < 8 * 20_000


class TestJoin:
    IMAGES = catalog("1.png", "2.png", "3.png", base="images/")
    MASKS = catalog("3.tif", "9.tif", "1.tif", "2.tif", base="masks/")

    def test_entries_with_equal_stems_form_the_samples_of_the_first(self):
        found = Catalog.join({"image": self.IMAGES[::-1], "mask": self.MASKS})
        assert members(found)[0] == ("3", {"image": one("3.png"), "mask": one("3.tif")})
        assert [key for key, _ in members(found)] == ["3", "2", "1"]

    def test_buckets_and_stores_differ(self, tmp_path):
        (tmp_path / "1.png").write_bytes(b"one")
        local = Catalog.scan(f"{tmp_path}/")
        found = Catalog.join({"image": local, "mask": self.MASKS})
        assert [part.root for part in found.parts] == ["file:///", ROOT]
        assert found.digest == Catalog.join({"image": local, "mask": self.MASKS}).digest

    def test_rules_may_differ_by_field(self):
        others = catalog("mask-3-a.tif", "mask-1-a.tif", "mask-2-a.tif")
        on = {"image": "stem", "mask": r"mask-(?P<key>\d+)-.*", "more": ["2", "3", "1", None]}
        found = Catalog.join({"image": self.IMAGES, "mask": others, "more": self.MASKS}, on=on)
        assert members(found)[0][1] == {
            "image": one("1.png"), "mask": one("mask-1-a.tif"), "more": one("1.tif")
        }  # fmt: skip
        assert {*members(found)[2][1].values()} >= {one("9.tif")}

    def test_function_gives_keys(self):
        found = Catalog.join({"image": self.IMAGES, "mask": self.MASKS}, on=lambda name: name[:1])
        assert [key for key, _ in members(found)] == ["1", "2", "3"]

    def test_missing_entry_is_an_error_dropped_or_none(self):
        catalogs = {"image": self.IMAGES, "mask": self.MASKS.filter(exclude="2.tif")}
        refused(Unusable, "1 of 3 samples lack a field: '2' has no 'mask', only image", Catalog.join, catalogs)
        assert [key for key, _ in members(Catalog.join(catalogs, missing="drop"))] == ["1", "3"]
        assert members(Catalog.join(catalogs, missing="none"))[1] == ("2", {"image": one("2.png"), "mask": None})

    def test_labels_and_columns_are_those_of_the_lead(self):
        images = catalog("x/1.png", "y/2.png").with_labels("folder").with_columns(at=[7, 8])
        found = Catalog.join({"image": images, "mask": catalog("x/1.tif", "y/2.tif").with_labels("folder")})
        assert found.classes == ("x", "y")
        assert found.columns["at"].tolist() == [7, 8]

    @pytest.mark.parametrize(
        ("catalogs", "arguments", "match"),
        [
            ({}, {}, "join takes a mapping"),
            ({"image": 5}, {}, "'image' must be a Catalog"),
            ({"image": IMAGES, "mask": MASKS}, {"on": 5}, "on must be"),
            ({"image": IMAGES, "mask": MASKS}, {"on": "steam"}, "on must be \"stem\", a regular .* got 'steam'"),
            ({"image": IMAGES, "mask": catalog("x.tif")}, {"missing": "drop"}, "no key of 'image', such as '1'"),
            ({"image": IMAGES, "mask": MASKS}, {"on": r"(?P<key>\d)\.png"}, "4 entries of 'mask' have no key"),
            ({"image": IMAGES, "mask": MASKS}, {"on": {"image": "stem"}}, "mask is only in one of the two"),
            ({"image": IMAGES, "mask": MASKS}, {"on": ["1"]}, "one key .* for each of its 3 entries"),
            ({"image": IMAGES + IMAGES[:1], "mask": MASKS}, {}, "the key '1' occurs twice in 'image'"),
            ({"image": IMAGES, "mask": MASKS + MASKS[2:3]}, {}, "the key '1' occurs twice in 'mask'"),
            ({"image": IMAGES, "mask": MASKS}, {"missing": "outer"}, "missing must be"),
        ],
    )
    def test_misuse_is_refused(self, catalogs, arguments, match):
        refused(Unusable, match, Catalog.join, catalogs, **arguments)


_HASHES = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2)), max_size=30)


@given(_HASHES, _HASHES)
def test_keys_differ_by_both_hashes(given_keys, others):
    def digests(pairs):
        return np.array(pairs, np.int64).reshape(-1, 2).T.copy()

    numbers, count = number_keys(digests(given_keys))
    different = [*dict.fromkeys(given_keys)]
    assert count == len(different)
    assert numbers.tolist() == [different.index(each) for each in given_keys]
    index = KeyIndex(digests(different))
    assert index.twice is None
    assert index.find(digests(others)).tolist() == [
        different.index(each) if each in different else -1 for each in others
    ]
    if count < len(given_keys):
        first, second = KeyIndex(digests(given_keys)).twice
        assert first < second
        assert given_keys[first] == given_keys[second]


def test_samples_are_formed_in_little_memory_for_each_object():
    def make(count):
        first, second = objects(count), objects(count, ".json")
        return first, second[::2] + second[1::4]

    def group(one):
        return one.with_groups("stem", missing="drop")

    def join(one, two):
        return Catalog.join({"image": one, "text": two}, missing="none")

    assert added_bytes(make, join, 24_000) < 64
    assert added_bytes(lambda count: [make(count)[0] + make(count)[1]], group, 24_000) < 64


class TestFile:
    def saved(self, *, other="memory://bucket/"):
        masks = Catalog.build(other, "masks/", [Entry("masks/1.tif", 3)])
        found = Catalog.join({"image": catalog("1.png", base="images/"), "mask": masks})
        url = f"memory://bucket/{uuid.uuid4().hex}"
        found.save(url)
        return url, found

    def test_objects_elsewhere_need_a_root_for_each_field(self):
        url, found = self.saved(other="memory://other/")
        refused(ManifestError, re.escape("{'image': 'memory://bucket/images/', 'mask': "), Catalog.open, url)
        with pytest.raises(ManifestError, match=r"at different places: pass root=\{field: URL\}"):
            Catalog.open(url, root="memory://bucket/images/")
        with pytest.raises(ManifestError, match="a URL for each field: image, mask"):
            Catalog.open(url, root={"image": "memory://bucket/images/"})
        opened = Catalog.open(url, root={"image": "memory://bucket/images/", "mask": "memory://other/masks/"})
        assert members(opened) == members(found)
        moved = Catalog.open(url, root={"image": "memory://bucket/images/", "mask": "memory://third/"})
        assert moved.parts[1].root == "memory://third/"
        assert moved.digest == found.digest

    def test_root_for_each_field_of_a_plain_catalog_is_refused(self):
        url = f"memory://bucket/{uuid.uuid4().hex}"
        catalog("a").save(url)
        refused(ManifestError, "it has no fields", Catalog.open, url, root={"image": "memory://bucket/"})

    def test_function_cannot_be_saved(self):
        found = catalog("a.jpg").with_groups(lambda name: (name[0], name[2:]))
        refused(Unusable, "a function formed", found.save, f"memory://bucket/{uuid.uuid4().hex}")

    LIES = {  # noqa: RUF012  never changed
        "another lead": lambda group: group.update(lead="depth"),
        "no lead": lambda group: group.update(lead=""),
        "a field twice": lambda group: group.update(fields=["image", "image"]),
        "a number as a field": lambda group: group.update(fields=["image", 5]),
        "an invalid rule": lambda group: group.update(rule="("),
        "a number as the rule": lambda group: group.update(rule=5),
        "a folder as the root": lambda group: group["parts"][0].update(root="memory://bucket/x"),
        "a base that keys lack": lambda group: group["parts"][0].update(base="other/"),
        "more objects": lambda group: group["parts"][0].update(objects=2),
        "more keys": lambda group: group["parts"][0].update(keys=2),
        "no vectors": lambda group: group["parts"][0].update(vectors=[]),
        "vectors elsewhere": lambda group: group["parts"][0]["vectors"][0].update(offset=64),
        "no parts": lambda group: group.update(parts=[]),
        "numbers as parts": lambda group: group.update(parts=[5]),
    }

    @pytest.mark.parametrize("lie", LIES)
    def test_file_that_lies_about_its_group_is_refused(self, lie):
        url, _ = self.saved()
        header, body = _parts(ps.open(url).read())
        self.LIES[lie](header["group"])
        with pytest.raises(ManifestError):
            Catalog.open(_put(_sealed(header, body)))

    def test_place_beyond_the_objects_is_refused(self):
        found = catalog("a.jpg", "a.json", "b.jpg").with_groups("stem", missing="none")
        url = f"memory://bucket/{uuid.uuid4().hex}"
        found.save(url)
        header, body = _parts(ps.open(url).read())
        place = next(each for each in header["group"]["parts"][0]["vectors"] if each["role"] == "place")
        for value in (1, -2):
            wrong = bytearray(body)
            wrong[place["offset"]] = np.int8(value).tobytes()[0]
            refused(ManifestError, "do not exist", Catalog.open, _put(_sealed(header, bytes(wrong))))


def test_state_of_other_members_is_refused():
    names = [f"{at}.{end}" for at in range(8) for end in ("jpg", "json", "txt")]
    made = [
        ps.DataLoader(ps.MapDataset(catalog(*names).with_groups("stem", fields=fields)), 2)
        for fields in (("jpg", "json"), ("jpg", "txt"))
    ]
    refused(StateMismatch, "catalog differs", made[1].load_state_dict, made[0].state_dict())
