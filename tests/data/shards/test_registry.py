"""Formats are found by name and by the ends of keys, and describe themselves as JSON."""

import json

import pytest

import penstock as ps
from penstock.data.shards.registry import FORMATS, format_by, format_of, is_shard, suffixes
from penstock.data.shards.tar import TarFormat
from penstock.errors import Unsupported, Unusable
from tests.refusals import refused


def test_description_is_json_and_gives_the_same_format():
    form = TarFormat(fields=("jpg", "cls"), key="last-dot", missing="drop", skip=("x*",))
    assert format_of(json.loads(json.dumps(form.described()))) == form


def test_format_with_a_function_cannot_be_described():
    refused(Unusable, "function as key=", TarFormat(key=lambda name: ("a", name)).described)


@pytest.mark.parametrize(
    "described",
    [
        None,
        [],
        {},
        {"name": "tar"},
        {"name": "os"},
        {"name": 5},
        {"name": "tar", "fields": 5, "key": "first-dot", "missing": "error", "skip": []},
        {"name": "tar", "fields": [], "key": "(((", "missing": "error", "skip": []},
        {"name": "tar", "fields": [], "key": "first-dot", "missing": "error", "skip": [], "more": 1},
    ],
)
def test_descriptions_from_a_hostile_file_are_refused(described):
    with pytest.raises((ValueError, Unusable)):
        format_of(described)


def test_every_format_can_be_imported_by_its_name_and_suffix():
    for name in FORMATS:
        # Only an index.json names LitData's chunks.
        assert (name in suffixes().values()) is not name.startswith("litdata")
        for suffix in (suffix for suffix, known in suffixes().items() if known == name):
            assert is_shard(f"a/B{suffix.upper()}", None)


def test_format_follows_from_the_ends_of_keys():
    assert format_by(None, ["a.tar", "b.TAR"], {"fields": ("x",), "key": None}) == TarFormat(fields=("x",))
    refused(Unusable, "cannot tell the format", format_by, None, ["a.tar", "b.xyz"][1:], {})
    refused(Unusable, "different formats", format_by, None, ["a.tar", "b.xyz"], {})


def test_wrong_formats_and_arguments_are_refused():
    refused(Unusable, "format must be one of 'tar'", format_by, "tarr", [], {})
    refused(Unusable, "a table that lists objects is a manifest", format_by, "csv", [], {})
    refused(Unusable, r"got 'mp4': ps\.VideoDataset\.from_shards makes clips", format_by, "mp4", [], {})
    with pytest.raises(Unusable, match=r"'a\.tsv' is not a shard: a table that lists objects is a manifest"):
        format_by(None, ["a.tsv"], {})
    refused(Unusable, "do not support colour=", format_by, "tar", [], {"colour": "red"})
    refused(Unusable, "to the format itself", format_by, TarFormat(), [], {"fields": ("x",)})


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("a/x.tfrecord-00000-of-00010", True),
        ("x.TFRecords-3-OF-7", True),
        ("x.tar-00000-of-00010", True),
        ("x.tfrecord-00000-of-", False),
        ("x.tfrecord-00000-of-00010.txt", False),
        ("train-00000-of-00010", False),
    ],
)
def test_number_of_a_shard_may_follow_its_end(key, expected):
    assert is_shard(key, None) is expected


def test_compressed_files_beside_shards_of_a_named_format_are_left_out():
    assert not is_shard("captions.jsonl.gz", TarFormat())
    refused(Unsupported, r'format="tar\.gz"', is_shard, "a.tar.gz", TarFormat())


def test_number_does_not_hide_a_compressed_shard():
    assert is_shard("x.tfrecord-00000-of-00010.gz", None)
    assert format_by(None, ["x.tfrecord-00000-of-00010.gz"], {}).name == "tfrecord.gz"


def test_archives_of_other_compressions_are_refused_with_advice():
    for name in ("a.tar.bz2", "a.TXZ", "a.tar.xz"):
        for form in (None, TarFormat(), format_by("tar.gz", [], {})):
            refused(Unsupported, r"ps\.pack", is_shard, name, form)


def test_plain_and_compressed_shards_are_not_mixed():
    refused(Unusable, "different formats", format_by, None, ["a.tar", "b.tar.gz"], {})


@pytest.mark.parametrize("argument", ["key", "missing", "skip", "fields"])
@pytest.mark.parametrize("form", ["jsonl", "tfrecord"])
def test_arguments_of_archives_are_refused(tmp_path, form, argument):
    if (form, argument) != ("jsonl", "fields"):
        with pytest.raises(Unusable, match=f"{form} shards do not support {argument}="):
            ps.Catalog.from_shards(tmp_path, format=form, **{argument: "error"})
