"""Labels come from folders, patterns, functions or lists; classes are sorted, and no entry stays without one."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.data.catalog.catalog import Catalog, Entry
from penstock.errors import Unusable
from tests.refusals import refused

NAMES = ["dog/3.jpg", "cat/1.jpg", "dog/2.jpg", "émeu/4.jpg"]


def _catalog(names, base="train/"):
    return Catalog.build("s3://bucket/", base, [Entry(base + name, 1) for name in names])


def test_folders_become_numbers_of_sorted_classes():
    catalog = _catalog(NAMES).with_labels("folder")
    assert catalog.classes == ("cat", "dog", "émeu")
    assert catalog.labels.tolist() == [1, 0, 1, 2]
    assert catalog.labels.dtype == np.int64
    assert [entry.label for entry in catalog] == [1, 0, 1, 2]
    assert catalog.label(-1) == 2
    assert type(catalog.label(0)) is int


def test_the_folder_is_the_last_directory_below_the_prefix():
    assert _catalog(["a/cat/1", "b/dog/1"]).with_labels("folder").classes == ("cat", "dog")


@pytest.mark.parametrize(
    "labels",
    [r"^([^/]+)/", re.compile(r"(\w+)/\d"), lambda name: name.split("/")[0], ["dog", "cat", "dog", "émeu"]],
    ids=["pattern", "compiled", "function", "list"],
)
def test_pattern_function_and_list_labels_match_the_folder_labels(labels):
    by_folder, catalog = _catalog(NAMES).with_labels("folder"), _catalog(NAMES).with_labels(labels)
    assert (catalog.classes, catalog.labels.tolist()) == (by_folder.classes, by_folder.labels.tolist())


@given(st.lists(st.text("ab1é", min_size=1, max_size=2), min_size=1, max_size=30))
def test_the_classes_depend_on_the_names_alone_and_not_on_their_order(folders):
    names = [f"{folder}/{number}" for number, folder in enumerate(folders)]
    one, other = (_catalog(each).with_labels("folder") for each in (names, names[::-1]))
    assert one.classes == other.classes == tuple(sorted(set(folders)))
    assert one.labels.tolist() == other.labels.tolist()[::-1]
    assert [one.classes[label] for label in one.labels] == folders


def test_digest_is_unchanged_by_adding_labels():
    assert _catalog(NAMES).digest == _catalog(NAMES).with_labels("folder").digest


def test_validation_takes_the_classes_of_training():
    training = _catalog(NAMES).with_labels("folder")
    validation = _catalog(["dog/9.jpg"], "val/").with_labels("folder", classes=training.classes)
    assert (validation.classes, validation.labels.tolist()) == (training.classes, [1])
    with pytest.raises(Unusable, match="labels that are not in classes=: 'eel'"):
        _catalog(["eel/1"]).with_labels("folder", classes=training.classes)


def test_numbers_are_labels_where_classes_name_them():
    catalog = _catalog(NAMES).with_labels([1, 0, 1, 1], classes=["cat", "dog"])
    assert (catalog.classes, catalog.labels.tolist()) == (("cat", "dog"), [1, 0, 1, 1])


def test_a_scan_takes_labels(tmp_path):
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    catalog = ps.Catalog.scan(f"{tmp_path}/", labels="folder")
    assert [catalog.classes[entry.label] for entry in catalog] == ["cat", "dog", "dog", "émeu"]


def test_classes_travel_with_parts_files_and_pickles():
    catalog = _catalog(NAMES).with_labels("folder")[1:]
    catalog.save("memory://labels/x.catalog")
    opened = Catalog.open("memory://labels/x.catalog", root="s3://bucket/train/")
    copy = Catalog.open("memory://labels/x.catalog", root="memory://copy/")
    for each in (opened, copy, catalog.filter(labels=["cat", "dog", "émeu"])):
        assert (each.classes, each.labels.tolist()) == (("cat", "dog", "émeu"), [0, 1, 2])


@pytest.mark.parametrize(
    ("names", "labels", "word"),
    [
        (["README", "cat/1"], "folder", r"1 objects have no folder.*'README'.*exclude=\['README'\]"),
        (["cat//1"], "folder", "no folder"),
        (["cat/1", "cat/more/2"], "folder", "different depths"),
        (NAMES, r"^(\d+)", r"4 objects do not match.*'dog/3.jpg', 'cat/1.jpg', 'dog/2.jpg', …"),
        (NAMES, r"(x)?", "do not match"),
        (NAMES, lambda _: None, "have no label by the function"),
        (NAMES, lambda _: 7, "must return a str"),
        (NAMES, lambda _: "\ud834", r"labels must be valid UTF-8, got '\\ud834'"),
        (NAMES, "folders", "has 0 groups"),
        (NAMES, "(a)(b)", "has 2 groups"),
        (NAMES, "(", "not a valid pattern"),
        (NAMES, re.compile(rb"(x)"), "the pattern must have one"),
        (NAMES, ["cat"], "has 1 values, the catalog 4 objects"),
        (NAMES, [0, 1, 1, 0], "need classes="),
        (NAMES, {"dog": 1}, "labels must be"),
        (NAMES, None, "labels must be"),
    ],
)
def test_unusable_label_rules_are_refused_with_the_reason(names, labels, word):
    refused(Unusable, word, _catalog(names).with_labels, labels)


@pytest.mark.parametrize("classes", ["cat", 5, [], ["cat", "cat"], [1, 2]])
def test_classes_are_different_names(classes):
    refused(
        Unusable, "classes must be a list of different names", _catalog(NAMES).with_labels, "folder", classes=classes
    )


@pytest.mark.parametrize("labels", [[0, 1, 2, 0], [0, -1, 0, 0], [0.0, 1, 1, 1]])
def test_numbers_outside_of_the_classes_are_refused(labels):
    refused(Unusable, "between 0 and 1", _catalog(NAMES).with_labels, labels, classes=["cat", "dog"])


def test_labels_of_a_catalog_without_classes_raise_with_the_remedy():
    assert _catalog(NAMES).classes == ()
    with pytest.raises(Unusable, match='labels="folder"'):
        _ = _catalog(NAMES).labels
