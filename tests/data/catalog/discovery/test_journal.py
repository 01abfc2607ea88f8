"""What an interrupted listing has left is taken up whole, whatever became of the file's end."""

import errno
import os
import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.catalog.discovery.journal import Beyond, Journal, Stretch, gaps, journal
from penstock.data.catalog.discovery.scan import ScanOptions, listed
from penstock.engine.contracts.driver import Abilities
from penstock.errors import Throttled, Unusable
from tests.refusals import refused

ABOUT = {"url": "s3://bucket/a/", "include": [], "exclude": []}
STRETCHES = [
    Stretch(b"", b"c", [b"a", b"b\xff"], [1, 2], ["x", "é"]),
    Stretch(b"m", b"p\n", [b"n"], [0], [""], b"m\xff", b"q"),
    Stretch(b"x", None, [], [], []),
]


def _kept(path, about=ABOUT, **options):
    with journal(path, about, **options) as kept:
        return kept.known


def _filled(path):
    with journal(path, ABOUT) as kept:
        for each in reversed(STRETCHES):
            kept.add(each)
    return path


def test_stretches_come_back_in_order(tmp_path):
    path = _filled(tmp_path / "new folder" / "a.partial")
    assert _kept(path) == STRETCHES
    assert path.stat().st_mode & 0o077 == 0
    with journal(path, ABOUT) as kept:
        kept.remove()
        kept.remove()
    assert not path.exists()


def test_journal_of_a_different_listing_is_discarded(tmp_path):
    path = _filled(tmp_path / "a")
    assert _kept(path, {**ABOUT, "include": ["*.jpg"]}) == []
    assert _kept(path) == []
    assert _kept(_filled(tmp_path / "b"), restart=True) == []


def test_torn_journal_keeps_its_complete_lines_and_can_be_continued(tmp_path):
    whole = _filled(tmp_path / "a").read_bytes()
    lines = whole.splitlines(keepends=True)
    for size in range(len(whole)):
        path = tmp_path / "b"
        path.write_bytes(whole[:size])
        left = sum(len(b"".join(lines[: at + 2])) <= size for at in range(3))
        with journal(path, ABOUT) as kept:
            assert kept.known == STRETCHES[3 - left :]
            kept.add(Stretch(b"d", b"e", [b"e"], [5], ["y"]))
        assert Stretch(b"d", b"e", [b"e"], [5], ["y"]) in _kept(path)


def test_journal_lines_from_an_altered_line_on_are_discarded(tmp_path):
    path = _filled(tmp_path / "a")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"m"', b'"k"'), lines[3]]))
    assert _kept(path) == STRETCHES[2:]


@pytest.mark.parametrize("there", [b"text\n", b"a" * 500, b"\x89penstock.cat\r\n\x1a" + bytes(99)])
def test_a_file_that_is_something_else_is_not_touched(tmp_path, there):
    path = tmp_path / "a"
    path.write_bytes(there)
    refused(Unusable, "remove it", _kept, path)
    assert path.read_bytes() == there


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    refused(Unusable, "cannot keep", _kept, tmp_path / "a")
    assert not (tmp_path / "elsewhere").exists()


def test_another_process_is_kept_out(tmp_path):
    with journal(tmp_path / "a", ABOUT):
        code = (
            "import pathlib, sys\nfrom penstock.data.catalog.discovery.journal import journal\n"
            "with journal(pathlib.Path(sys.argv[1]), {}): pass"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "a")], capture_output=True, text=True, check=False
        )
    assert "another process" in done.stderr
    assert _kept(tmp_path / "a") == []


def test_file_system_without_locks_raises_with_the_file_name(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("penstock.data.catalog.discovery.journal.fcntl.flock", refuse)
    refused(Unusable, rf"{tmp_path}/a: {os.strerror(errno.ENOLCK)}", _kept, tmp_path / "a")


def test_full_disk_raises_with_the_file_name():
    with open("/dev/full", "r+b", buffering=0) as full, pytest.raises(Unusable, match=r"/dev/full.*No space"):
        Journal(full, "/dev/full", []).add(STRETCHES[0])


def test_a_write_that_was_cut_short_is_a_full_disk(tmp_path):
    class Short:
        def write(self, data):
            return len(data) - 1

    refused(Unusable, os.strerror(errno.ENOSPC), Journal(Short(), tmp_path, []).add, STRETCHES[0])


@given(st.lists(st.text("abc", max_size=3), unique=True, max_size=9), st.booleans())
def test_gaps_cover_exactly_the_keys_outside_known_stretches(texts, ends):
    bounds = sorted(text.encode() for text in texts)
    pairs = list(zip(bounds[::2], bounds[1::2], strict=False))
    known = [Stretch(*pair) for pair in pairs] + ([Stretch(b"zz", None)] if ends else [])
    for key in (b"0", b"a", b"ab", b"b", b"bc", b"cc", b"zzz"):
        within = any(each.after < key and (each.until is None or key <= each.until) for each in known)
        left = any(after < key and (until is None or key <= until) for after, until in gaps(known))
        assert within is not left


class _Stop(Exception):
    pass


@pytest.mark.parametrize("seeks", [True, False])
@pytest.mark.parametrize("name", ["{0:05}", "{1}/{0:05}", "{0:05}/x"])
def test_a_listing_that_is_broken_off_again_and_again_is_the_plain_one(bucket_of, tmp_path, name, seeks):
    bucket = bucket_of((name.format(i, i % 7) for i in range(2000)), 20)
    bucket.abilities = Abilities(seeks=seeks, jumps=seeks)
    wanted = listed(bucket, "", ScanOptions(workers=1))[1]
    del bucket.requests[:]
    rounds = 0

    def broken(count):
        def stop(_):
            nonlocal count
            count -= 1
            if count < 0:
                raise _Stop

        return stop

    while True:
        rounds += 1
        with journal(tmp_path / "a", ABOUT) as kept:
            try:
                _, table = listed(
                    bucket, "", ScanOptions(progress=broken(30 if seeks else 1000), known=kept, workers=5)
                )
            except _Stop:
                continue
        break
    rows = range(table.rows)
    assert [table.keys[row] for row in rows] == [wanted.keys[row] for row in range(wanted.rows)]
    assert table.sizes.values.tolist() == wanted.sizes.values.tolist()
    assert [*map(table.etags.text, rows)] == [*map(wanted.etags.text, rows)]
    if seeks:
        assert rounds > 2
        pages = sum(not request["delimiter"] for request in bucket.requests)
        assert pages < 3 * bucket.plain_pages()


def test_stretches_kept_before_an_error_are_requested_only_once(bucket_of, tmp_path):
    fail = True

    def refuse(start_after, token, **_):
        if fail and (token or start_after) > "07":
            raise Throttled("slow down")

    bucket = bucket_of((f"{i // 10:02}/{i:03}" for i in range(100)), 10, before=refuse)
    with journal(tmp_path / "a", ABOUT) as kept, pytest.raises(Throttled):
        listed(bucket, "", ScanOptions(known=kept, workers=1))
    fail, first = False, len(bucket.requests)
    with journal(tmp_path / "a", ABOUT) as kept:
        assert listed(bucket, "", ScanOptions(known=kept, workers=1))[1].rows == 100
    assert len(bucket.requests) - first <= 4


def test_stretches_from_a_server_ignoring_start_after_are_listed_again_in_order(bucket_of, tmp_path):
    class Old(bucket_of):
        def page(self, prefix, *, token="", start_after="", delimiter=""):  # noqa: ARG002  it takes no notice
            return super().page(prefix, token=token, delimiter=delimiter)

    bucket = Old([f"{at:03}" for at in range(100)], 10, jumps=True)
    with journal(tmp_path / "a", ABOUT) as kept:
        kept.add(Stretch(b"", b"019", [b"%03d" % at for at in range(20)], [3] * 20, [""] * 20))
        kept.add(Stretch(b"030", b"035"))
    with journal(tmp_path / "a", ABOUT) as kept:
        _, table = listed(bucket, "", ScanOptions(known=kept))
    assert [table.keys[row].decode() for row in range(table.rows)] == bucket.keys, "an empty stretch proves nothing"
    assert _kept(tmp_path / "a") == []


@pytest.mark.parametrize("killed", [*range(0, 60, 6)])
def test_keys_that_were_left_out_before_a_kill_are_found_after_it(bucket_of, tmp_path, killed):
    """Which part was listed before the kill and which one after does not matter."""

    class Skipping(bucket_of):
        def page(self, prefix, *, token="", start_after="", delimiter=""):
            if start_after and not (token or delimiter):
                at = next((at for at, key in enumerate(self.keys) if key > start_after), len(self.keys))
                return super().page(prefix, token="".join(self.keys[at : at + 1]) or start_after)
            return super().page(prefix, token=token, start_after=start_after, delimiter=delimiter)

    bucket = Skipping([f"{at:04}" for at in range(1000)], 20, jumps=True)
    left = killed

    def kill(_):
        nonlocal left
        left -= 1
        if left == 0:
            raise _Stop

    with journal(tmp_path / "a", ABOUT) as kept, suppress(_Stop):
        listed(bucket, "", ScanOptions(progress=kill, known=kept, workers=8))
    with journal(tmp_path / "a", ABOUT) as kept:
        _, table = listed(bucket, "", ScanOptions(known=kept, workers=8))
    assert [table.keys[row].decode() for row in range(table.rows)] == bucket.keys


@pytest.mark.parametrize("follows", ["a gap", "a stretch"])
def test_keys_missed_by_an_interrupted_listing_are_found_by_the_next_run(bucket_of, tmp_path, follows):
    """The run before was ended when it had taken in both sides of a bound, of which the later one begins too late."""

    class Late(bucket_of):
        def page(self, prefix, *, token="", start_after="", delimiter=""):
            return super().page(prefix, token=token, start_after=start_after and "0051", delimiter=delimiter)

    bucket = Late([f"{at:04}" for at in range(100)], 50, jumps=True)
    early, late = [[*map(str.encode, part)] for part in (bucket.keys[:50], bucket.keys[52:])]
    with journal(tmp_path / "a", ABOUT) as kept:
        beyond = b"0050" if follows == "a stretch" else b""
        kept.add(Stretch(b"", b"0049", early, [4] * 50, [""] * 50, early[0], beyond))
        if beyond:
            kept.add(Stretch(b"0049", None, late, [4] * 48, [""] * 48, late[0]))
    with journal(tmp_path / "a", ABOUT) as kept:
        _, table = listed(bucket, "", ScanOptions(known=kept))
    assert [table.keys[row].decode() for row in range(table.rows)] == bucket.keys


@pytest.mark.parametrize("seeks", [True, False])
def test_listing_beyond_a_key_finds_only_later_keys(bucket_of, seeks):
    bucket = bucket_of([f"{at:03}" for at in range(100)], 10, jumps=seeks)
    bucket.abilities = Abilities(seeks=seeks, jumps=seeks)
    _, table = listed(bucket, "", ScanOptions(known=Beyond(b"0885")))
    assert [table.keys[row].decode() for row in range(table.rows)] == bucket.keys[89:]
    assert len(bucket.requests) <= (3 if seeks else 10)
