"""Leftovers of other tools are recognised by their names, and so are splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.listing.names import Names
from penstock.engine.listing.select import Leftovers, leftover, split_of, splits_of


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        *((name, name) for name in ("_SUCCESS", "_started_1234", "_committed_1234", "_metadata", ".DS_Store")),
        *(("_temporary/0/task/part-0.parquet", "_temporary"), ("a/_delta_log/000.json", "_delta_log")),
        *(("x/_common_metadata", "_common_metadata"), ("cat/._0001.jpg", "._0001.jpg")),
        (".ipynb_checkpoints/a-checkpoint.png", ".ipynb_checkpoints"),
        *((".part-0.parquet.crc", ".part-0.parquet.crc"), (".cache/huggingface/download/a.metadata", ".cache")),
        *(("__MACOSX/cat/0001.jpg", "__MACOSX"), ("cat/Thumbs.db", "Thumbs.db"), ("@eaDir/x.jpg", "@eaDir")),
        *(("a.parquet.tmp", "*.tmp"), ("a.incomplete", "*.incomplete"), ("set.incomplete/a.jpg", "*.incomplete")),
        *(("a.jpg.part", "*.part"), ("part-0._COPYING_", "*._COPYING_"), ("folder_$folder$", "*_$folder$")),
        ("a.txt~", "*~"),
    ],
)
def test_leftover_of_another_tool_is_named_by_a_component(name, mark):
    assert leftover(name) == leftover(name, shards=True) == mark


DATA = ["a.jpg", "cat/_DSC0001.jpg", "__init__.png", "__x__/a.jpg", "part-00000.parquet", "a.tmp.jpg", "temporary/a"]


@pytest.mark.parametrize("name", [*DATA, "..", "a/../b", ""])
def test_other_names_are_data(name):
    assert leftover(name) == ""


def test_all_names_with_an_underscore_in_front_are_leftovers_among_shards_but_for_partitions():
    assert leftover("_x/a.parquet", shards=True) == "_x"
    assert leftover("a/_x.parquet", shards=True) == "_x.parquet"
    assert leftover("_x=1/a.parquet", shards=True) == ""


def test_names_that_are_asked_for_are_kept():
    left = Leftovers("data/", ["_temporary/**", "*.tmp"])
    assert left.wanted("_temporary/a.jpg")
    assert left.wanted("a.tmp")
    assert not left.wanted("x/.a")
    assert not left.wanted("b.part")
    assert len(left) == 2
    assert "2 objects are leftovers of other tools: .a, *.part" in str(left)


def test_component_that_the_prefix_names_is_kept():
    left = Leftovers("data/_te")
    assert left.wanted("_temporary/a.jpg")
    assert not left.wanted("_temporary/.a.jpg")
    assert not left.wanted("_temporary/a.tmp")
    assert Leftovers("data/.DS_Store").wanted(".DS_Store")


_PIECES = ["a", "é", ".", "_", "~", "_SUCCESS", "Thumbs.db", "lost+found", ".tmp", ".part", "_$folder$", "._COPYING_"]


@given(
    st.lists(st.lists(st.sampled_from([*_PIECES, "/", "/", "x.gstmp", "$RECYCLE.BIN"]), max_size=6).map("".join)),
    st.sampled_from(["", "é/", "é/.b/", "a/t", "_te"]),
    st.booleans(),
)
def test_every_leftover_is_a_suspect(names, prefix, shards):
    base = prefix[: prefix.rfind("/") + 1]
    names = [prefix[len(base) :] + each for each in names]
    suspects = Leftovers(prefix, shards=shards).suspects(
        Names.of([(base + each).encode() for each in names]), len(base.encode())
    )
    left = Leftovers(prefix, shards=shards)
    assert not [each for each, suspect in zip(names, suspects, strict=True) if not suspect and left.mark(each)]


def test_names_of_data_are_not_suspected():
    found = Leftovers("x/").suspects(Names.of([f"x/{each}".encode() for each in DATA]), 2)
    # Names with "_" in front may be leftovers among shards.
    assert [name for name, suspect in zip(DATA, found, strict=True) if suspect] == ["cat/_DSC0001.jpg", *DATA[2:4]]


def test_repeated_marks_are_counted():
    left = Leftovers()
    assert [left.wanted(f"_temporary/{at}.jpg") for at in range(3)] == [False] * 3
    assert "_temporary (3)" in str(left)
    left.clear()
    assert len(left) == 0


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train/a.jpg", "train"),
        ("data/train-00000-of-00010.parquet", "train"),
        ("c4-validation.00000-of-00008.json.gz", "validation"),
        ("Val/a.jpg", "validation"),
        ("x/dev.jsonl", "validation"),
        ("test_1.parquet", "test"),
        ("constraint.parquet", ""),
        ("latest/a.parquet", ""),
    ],
)
def test_split_is_a_word_of_a_name(name, split):
    assert split_of(name)[0] == split


def test_splits_are_counted_with_an_example():
    names = ["data/test-0.parquet", "data/train-0.parquet", "data/train-1.parquet", "x.parquet"]
    assert splits_of(names) == {"test": (1, "data/test"), "train": (2, "data/train")}
