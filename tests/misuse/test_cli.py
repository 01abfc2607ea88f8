"""What hurried users type after ``penstock``, and the word that tells them what to do instead."""

import os

import pytest

from tests.cli.warm import warm

LONG = "x" * 300
MISUSES = [
    # the words, the exit code, a word of what is said
    ("cp bucket/key file", 1, "/bucket/key"),
    ("cp file s3:/bucket/key", 2, "'://'"),
    ("cp file S3://bucket/key", 2, "did you mean s3://"),
    ("cp file https://bucket.s3.amazonaws.com/key", 2, "write s3://bucket/key"),
    ("cp file C:\\data", 2, "Windows"),
    ("cp file ~/data", 2, "expanduser"),
    ("cp file here", 2, "write file:///"),
    ("cp here copy", 2, "pass -r for all"),
    ("cp -r here here/copy", 2, "inside the source"),
    ("cp file file", 2, "overwrite one of the sources"),
    ("cp file", 2, "DEST"),
    ("cp - s3://bucket/key", 2, "penstock cat"),
    ("cp s3://bucket/key -", 2, "penstock cat"),
    ("cp fifo copy", 2, "a FIFO"),
    ("cp file fifo", 2, "a FIFO"),
    ("cp /dev/zero copy", 2, "a character device"),
    ("cp file /dev/null", 2, "a character device"),
    ("cp /proc/self/status copy", 2, "does not report the size"),
    ("cp file .penstock-x", 2, "reserved for files being written"),
    ("cat fifo", 2, "a FIFO"),
    ("cat here", 1, "a directory"),
    ("cat --range 5 file", 2, "START:STOP"),
    ("stat /dev/zero", 2, "a character device"),
    ("stat s3://bucket", 2, "names a bucket"),
    ("ls here/*.none", 1, "not as a glob"),
    ("ls https://bucket.s3.amazonaws.com/key", 2, "write s3://bucket/key"),
    ("du none*", 1, "not as a glob"),
    ("rm here", 2, "pass -r for all"),
    ("rm -r none", 1, "no object or folder"),
    ("rm --incomplete /", 2, "every file of this machine"),
    ("rm", 2, "URL"),
    ("mv file file", 2, "overwrite one of the sources"),
    ("checkpoint rm here", 2, "STEP"),
    ("copy file other", 2, "No such command"),
    ("mb /tmp/x", 2, "cannot create or delete buckets"),
    ("ls https://s3.console.aws.amazon.com/s3/buckets/bkt?prefix=a/", 2, "write s3://bkt/a/"),
    ("ls obspec://bucket/", 2, "pass store=ObspecOptions(store=…)"),
    ("lss here", 2, "ls"),
    *[(f"{words} {LONG}", 2, "File name too long") for words in ("stat", "cat", "rm", "rm -r", f"mv {LONG}")],
    (f"cp file {LONG}", 2, "at most 255"),
    (f"cp file {LONG}/", 2, "File name too long"),
]


@pytest.fixture(scope="module")
def ordered():
    with warm() as run:
        yield run


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    for name in ("file", "here/kept"):
        (tmp_path / name).write_bytes(b"bytes")
    os.mkfifo(tmp_path / "fifo")
    return tmp_path


@pytest.mark.parametrize(("words", "code", "word"), MISUSES, ids=[words.replace(LONG, "LONG") for words, *_ in MISUSES])
def test_invalid_command_fails_without_traceback_or_new_files(here, ordered, words, code, word):
    done = ordered(words.split(" "), dict(os.environ) | {"COLUMNS": "200", "AWS_EC2_METADATA_DISABLED": "true"})
    assert (done.returncode, word in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr
    assert sorted(str(path.relative_to(here)) for path in here.rglob("*")) == ["fifo", "file", "here", "here/kept"]
