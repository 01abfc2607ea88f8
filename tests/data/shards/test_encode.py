"""Archives are what tarfile and zipfile read, the same bytes every time, with the sizes that were told before."""

import io
import tarfile
import zipfile
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.shards.encode import ENCODERS, TarEncoder, ZipEncoder, check_member
from penstock.errors import Unusable
from tests.refusals import refused

NAMES = ["a.txt", "x" * 150 + ".txt", "d" * 90 + "/" + "e" * 90 + ".txt", "é/ü.txt", "b/" * 400 + "c.bin"]


def written(kind, members):
    """Return an archive; each member adds as many bytes as were told."""
    encoder, out = kind(), io.BytesIO()
    for name, data in members:
        before = encoder.position + encoder.end_bytes
        told = encoder.added_bytes(name, len(data))
        out.write(encoder.header(name, len(data), zlib.crc32(data)) + data)
        out.write(encoder.padding())
        assert encoder.position == out.tell()
        assert encoder.position + encoder.end_bytes == before + told
    expected = encoder.position + encoder.end_bytes
    out.write(encoder.end())
    assert out.tell() == encoder.position == expected
    return out.getvalue()


def read(kind, data):
    if kind is TarEncoder:
        with tarfile.open(fileobj=io.BytesIO(data)) as archive:
            return [(each.name, archive.extractfile(each).read()) for each in archive]
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        return [(each.filename, archive.read(each)) for each in archive.infolist()]


name = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="/\0\\"), min_size=1, max_size=120).filter(
    lambda text: text.strip() not in (".", "..")
)


@pytest.mark.parametrize("kind", [TarEncoder, ZipEncoder])
@given(st.dictionaries(st.lists(name, min_size=1, max_size=4).map("/".join), st.binary(max_size=2000), max_size=8))
def test_python_reads_what_was_written(kind, members):
    archive = written(kind, members.items())
    assert read(kind, archive) == [*members.items()]
    assert written(kind, members.items()) == archive


@pytest.mark.parametrize("kind", [TarEncoder, ZipEncoder])
def test_names_of_any_length_and_script(kind):
    members = [(each, b"x" * number) for number, each in enumerate(NAMES)]
    assert read(kind, written(kind, members)) == members


def test_tar_headers_are_ustar_where_they_fit_and_without_owner_or_time():
    with tarfile.open(fileobj=io.BytesIO(written(TarEncoder, [(each, b"") for each in NAMES]))) as archive:
        found = [*archive]
    assert [bool(each.pax_headers) for each in found] == [False, True, False, True, True]
    assert {(each.mtime, each.uid, each.gid, each.uname, each.mode) for each in found} == {(0, 0, 0, "", 0o644)}


@pytest.mark.parametrize("name", ["a", "x" * 99, "x" * 100, "d/" * 49 + "a.b"])
@pytest.mark.parametrize("size", [0, 1, 511, 8**11 - 1])
def test_plain_tar_headers_are_those_of_tarfile(name, size):
    member = tarfile.TarInfo(name)
    member.size = size
    assert TarEncoder().header(name, size) == member.tobuf(tarfile.USTAR_FORMAT)


def test_tar_member_of_more_than_8_gib_has_its_size_in_a_pax_record():
    header = TarEncoder().header("a.bin", 9 << 30)
    assert (len(header), b"size=%d\n" % (9 << 30) in header) == (3 * 512, True)
    member = tarfile.TarInfo("a.bin")
    member.size = 9 << 30
    assert header == member.tobuf(tarfile.PAX_FORMAT)


@pytest.mark.parametrize("position", [0, 5 << 30])
@pytest.mark.parametrize("size", [0, 5 << 30])
def test_zip_beyond_4_gib_has_64_bit_records(position, size):
    encoder = ZipEncoder()
    if position:
        encoder.header("before.bin", position)
    told = encoder.position + encoder.end_bytes + encoder.added_bytes("a.bin", size)
    start = encoder.position
    encoder.header("a.bin", size)
    assert encoder.position + encoder.end_bytes == told
    there = encoder.position
    # The members themselves are left out: their directory alone is read.
    tail = encoder.end()
    found = zipfile.ZipFile(_Sparse(there, tail)).infolist()[-1]
    assert (found.header_offset, found.file_size) == (start, size)


class _Sparse(io.RawIOBase):
    """A file of zeros that ends with some bytes."""

    def __init__(self, start, tail):
        self._start, self._tail, self._at = start, tail, 0

    def seekable(self):
        return True

    def seek(self, offset, whence=0):
        self._at = offset + (0, self._at, self._start + len(self._tail))[whence]
        return self._at

    def tell(self):
        return self._at

    def read(self, size=-1):
        assert self._at >= self._start
        at = self._at - self._start
        found = self._tail[at:] if size < 0 else self._tail[at : at + size]
        self._at += len(found)
        return found


def test_zip_of_many_members_has_its_count_in_64_bits():
    members = [(f"{number}", b"") for number in range(70_000)]
    assert len(read(ZipEncoder, written(ZipEncoder, members))) == 70_000


@pytest.mark.parametrize("kind", ENCODERS.values(), ids=ENCODERS)
def test_empty_archive_is_one(kind):
    assert read(kind, written(kind, [])) == []


@pytest.mark.parametrize("name", ["", "/a", "a/", "a//b", "../a", "a/./b", "a\0b", "\udc80", "x" * 70_000])
def test_names_that_cannot_be_members_are_refused(name):
    refused(Unusable, "cannot be the name of a member", check_member, name)
