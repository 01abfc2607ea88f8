"""Zip files: the samples that zipfile reads, by ranges; what is hostile or cannot be read is refused by name."""

import contextlib
import io
import itertools
import os
import shutil
import struct
import subprocess
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.shards.zip import ZipFormat
from penstock.errors import ChecksumMismatch, Damaged, Unsupported
from tests.amounts import examples
from tests.conftest import REQUIRE_SERVERS
from tests.data.shards.archives import samples, walked, zipped
from tests.refusals import refused

STORED, DEFLATED = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
PAIRS = [("a.jpg", b"JPEG"), ("a.cls", b"1"), ("b.jpg", b"x" * 1000), ("b.cls", b"")]
EXPECTED = [("a", {"jpg": b"JPEG", "cls": b"1"}), ("b", {"jpg": b"x" * 1000, "cls": b""})]
KINDS = [*itertools.product((STORED, DEFLATED), (False, True), (False, True))]


def enumerated(contents):
    return ((f"{number}.x", content) for number, content in enumerate(contents))


def flat(found):
    return [(f"{key}.{field}", value) for key, fields in found for field, value in fields.items()]


def read_by_zipfile(data):
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return [(each.filename, archive.read(each)) for each in archive.infolist() if not each.is_dir()]


def patched(data, at, form, *values):
    """Return ``data`` with a struct at byte ``at``; from the end if negative."""
    copy = bytearray(data)
    struct.pack_into(form, copy, at if at >= 0 else len(copy) + at, *values)
    return bytes(copy)


def entries(data):
    """Return where the directory's entries are, as far as there is no comment."""
    count, _, start = struct.unpack_from("<HII", data, len(data) - 12)
    found = []
    for _ in range(count):
        found.append(start)
        start += 46 + sum(struct.unpack_from("<HHH", data, start + 28))
    return found


@pytest.mark.parametrize(("method", "streamed", "wide"), KINDS)
def test_neighbours_with_the_same_key_are_one_sample(method, streamed, wide):
    data = zipped(PAIRS, method, streamed=streamed, wide=wide)
    assert samples(ZipFormat(), data) == EXPECTED
    assert flat(EXPECTED) == read_by_zipfile(data)


CONTENTS = st.one_of(
    st.binary(max_size=200),
    st.integers(0, 5000).map(lambda size: b"z" * size),
    st.lists(st.binary(max_size=9), max_size=3).map(lambda each: zipped([*enumerated(each)], streamed=True)),
    st.lists(st.sampled_from([b"PK\3\4", b"PK\7\x08", bytes(12)]), max_size=9).map(b"".join),
)
NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), max_size=30)


@given(
    st.lists(
        st.tuples(NAMES, st.lists(st.tuples(CONTENTS, st.sampled_from([STORED, DEFLATED])), max_size=3)), max_size=9
    ),
    st.booleans(),
    st.booleans(),
    st.binary(max_size=80),
    st.binary(max_size=50),
)
@settings(max_examples=examples(150), deadline=None)
def test_samples_are_those_that_zipfile_reads(drawn, streamed, wide, comment, prefix):
    members = []
    for number, (folder, contents) in enumerate(drawn):
        for field, (content, method) in enumerate(contents):
            info = zipfile.ZipInfo(f"d{folder}/{number}.{field}.é")
            info.compress_type = method
            members.append((info, content))
    comment = comment.replace(b"PK\5\6", b"")
    data = prefix.replace(b"PK", b"") + zipped(members, streamed=streamed, wide=wide, comment=comment)
    try:
        found = flat(samples(ZipFormat(), data))
    except Damaged as error:
        # Signature and sums of nothing, as drawn here: an end that a stored member may have.
        if streamed and "is ambiguous" in str(error) and any(b"PK\7\x08" in each for _, each in members):
            return
        raise
    assert found == read_by_zipfile(data)
    assert len(found) == len(members)


@pytest.mark.skipif(shutil.which("zip") is None and not REQUIRE_SERVERS, reason="needs Info-ZIP")
@pytest.mark.parametrize("options", [[], ["-0"], ["-9", "-X"], ["-fd"], ["-D", "-q"]], ids=" ".join)
@pytest.mark.parametrize("streamed", [False, True])
def test_files_of_info_zip_are_read(tmp_path, options, streamed):
    (tmp_path / "d").mkdir()
    for name, content in (("d/é.jpg", os.urandom(3000)), ("d/é.txt", b"t" * 5000), ("e.txt", b""), ("f.txt", b"1")):
        (tmp_path / name).write_bytes(content)
    program = ["zip", *options, "-" if streamed else "x.zip", "d", "d/é.jpg", "d/é.txt", "e.txt", "f.txt"]
    output = subprocess.run(program, cwd=tmp_path, check=True, capture_output=True).stdout
    data = output if streamed else (tmp_path / "x.zip").read_bytes()
    found = flat(samples(ZipFormat(), data))
    assert found == read_by_zipfile(data)
    assert len(found) == 4


def test_file_of_java_is_read():
    data = (Path(__file__).parent / "golden" / "java.zip").read_bytes()
    assert samples(ZipFormat(), data) == [
        ("cats/7", {"jpg": b"JPEG\1\2", "txt": b"label\n" * 300}),
        ("cats/8", {"jpg": b"", "txt": "é".encode()}),
    ]


class TestIndex:
    def test_members_are_not_read_to_find_them(self):
        data = zipped([(f"{number}.bin", bytes(600 << 10)) for number in range(20)])
        found, asks = walked(ZipFormat(), data)
        assert found.keys == [str(number) for number in range(20)]
        assert [ask.stop - ask.start for ask in asks] == [256 << 10, 512]

    def test_directory_of_many_members_is_read_in_two_requests_and_a_header(self):
        data = zipped([(f"{number}.bin", b"x" * 200) for number in range(7000)])
        found, asks = walked(ZipFormat(), data)
        assert len(found.offsets) == 7000
        assert len(asks) == 3
        assert sum(ask.stop - ask.start for ask in asks) < 1.1 * (7000 * 56 + (256 << 10))

    def test_directory_in_another_order_than_the_members(self):
        data = zipped(PAIRS)
        start, *_ = places = entries(data)
        places.append(len(data) - 22)
        turned = b"".join(data[one:other] for one, other in reversed([*itertools.pairwise(places)]))
        assert samples(ZipFormat(), data[:start] + turned + data[-22:]) == EXPECTED

    def test_more_members_than_zip_without_zip64_can_count(self):
        data = zipped([(f"{number}.x", b"") for number in range(70000)])
        assert data[-42:-38] == b"PK\6\7"
        found, _ = walked(ZipFormat(), data)
        assert len(found.offsets) == 70000
        # As some programs write it: the number modulo 65,536.
        size, start = struct.unpack_from("<QQ", data, len(data) - 22 - 20 - 16)
        short = data[: start + size] + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, *[70000 % 65536] * 2, size, start, 0)
        assert len(walked(ZipFormat(), short)[0].offsets) == 70000

    def test_end_of_another_zip_file_within_the_comment(self):
        assert samples(ZipFormat(), zipped(PAIRS, comment=b"PK\5\6" + bytes(30))) == EXPECTED
        assert samples(ZipFormat(), zipped(PAIRS, comment=zipped([])[:-1])) == EXPECTED

    def test_program_before_the_zip_file(self):
        assert samples(ZipFormat(), b"#!/bin/sh\n" * 9 + zipped(PAIRS)) == EXPECTED

    def test_file_without_members(self):
        assert samples(ZipFormat(), zipped([])) == []

    def test_data_behind_the_zip64_record(self):
        data = zipped([(f"{number}.x", b"") for number in range(65536)])
        end = len(data) - 22 - 20
        longer = patched(data, end - 56 + 4, "<Q", 44 + 10)
        longer = longer[:end] + bytes(10) + longer[end:]
        assert len(walked(ZipFormat(), longer)[0].offsets) == 65536
        refused(Damaged, "no zip64 record", walked, ZipFormat(), longer[: end + 3] + longer[end:])

    def test_folders_and_webdatasets_meta_members_are_left_out(self):
        data = zipped([("d/", b""), ("__meta__/x.json", b"{}"), ("d/a.jpg", b"1"), ("d/sub/", b""), ("d/a.cls", b"2")])
        assert samples(ZipFormat(), data) == [("d/a", {"jpg": b"1", "cls": b"2"})]

    def test_names_with_dots_are_only_names(self):
        assert samples(ZipFormat(), zipped([("../../etc/a.jpg", b"1")])) == [("../../etc/a", {"jpg": b"1"})]


class TestNames:
    def test_cp437_unless_the_flag_says_utf_8(self):
        data = zipped([("é.jpg", b"1")])
        assert samples(ZipFormat(), data)[0][0] == "é"
        [entry] = entries(data)
        for at in (6, entry + 8):
            data = patched(data, at, "<H", 0)
        assert samples(ZipFormat(), data)[0][0] == "├⌐"
        assert read_by_zipfile(data)[0][0] == "├⌐.jpg"

    def test_name_of_the_unicode_field_is_taken_with_its_sum(self):
        def of(crc):
            info = zipfile.ZipInfo("x.jpg")
            path = b"\1" + struct.pack("<I", crc) + "né.jpg".encode()
            info.extra = struct.pack("<HH", 0x7075, len(path)) + path
            data = zipped([(info, b"1")])
            return data.replace(b"x.jpg", b"\x82.jpg")

        assert samples(ZipFormat(), of(zlib.crc32(b"\x82.jpg")))[0][0] == "né"
        assert samples(ZipFormat(), of(1))[0][0] == "é"

    def test_names_with_nul_or_wrong_utf_8_are_refused(self):
        data = zipped([("é.jpg", b"1")])
        refused(Damaged, "as UTF-8, but is not", walked, ZipFormat(), data.replace("é".encode(), b"\xc3("))
        refused(Damaged, "has a NUL", walked, ZipFormat(), data.replace("é".encode(), b"\xc3\0"))


class TestSums:
    @pytest.mark.parametrize(("method", "streamed", "wide"), KINDS)
    def test_no_flipped_bit_gives_other_bytes(self, method, streamed, wide):
        content = b"some content " * 4
        data = zipped([("a.jpg", content)], method, streamed=streamed, wide=wide)
        found, _ = walked(ZipFormat(), data)
        [stop] = (found.offsets + found.sizes).tolist()
        start = 30 + 5 + 20 * wide
        for bit in range(8 * start, 8 * stop):
            wrong = bytearray(data)
            wrong[bit // 8] ^= 1 << bit % 8
            # A bit behind the last symbol of deflate is the only one that changes nothing.
            with contextlib.suppress(Damaged):
                assert samples(ZipFormat(), bytes(wrong)) == [("a", {"jpg": content})]

    def test_members_are_compared_with_their_crc_32(self):
        data = zipped(PAIRS).replace(b"JPEG", b"JPEH")
        with pytest.raises(ChecksumMismatch, match=r"CRC-32 of the member 'a.jpg' does not match its 4 bytes"):
            samples(ZipFormat(), data)
        assert samples(ZipFormat(fields="cls"), data) == [b"1", b""]

    def test_stored_members_are_views_and_others_are_not_copied_again(self):
        data = zipped([("a.jpg", b"JPEG")])
        found, _ = walked(ZipFormat(), data)
        sample = ZipFormat(fields="jpg").sample(memoryview(data)[: found.sizes[0]])
        assert (sample.obj is data, bytes(sample)) == (True, b"JPEG")

    def test_damaged_member_names_the_shard_and_its_bytes(self, tmp_path):
        (tmp_path / "a.zip").write_bytes(zipped(PAIRS).replace(b"JPEG", b"JPEH"))
        dataset = ps.MapDataset.from_shards(tmp_path)
        assert dataset[1]["cls"].read() == b""
        with pytest.raises(ChecksumMismatch, match=r"'a.jpg'.*a\.zip#bytes=0-74"):
            dataset[0]


class TestStreamed:
    """Members whose sizes are behind them."""

    @pytest.mark.parametrize(
        "content",
        [b"", b"1", b"PK\7\x08" * 5, b"PK\3\4" * 5, zipped(PAIRS, streamed=True), zipped(PAIRS)],
        ids=range(6),
    )
    @pytest.mark.parametrize("method", [STORED, DEFLATED])
    def test_descriptor_may_lack_its_signature(self, content, method):
        """As the format allows: nothing but three numbers between the bytes and what follows."""
        found = b""
        directory = []
        for name in (b"a.x", b"a.y", b"b.x"):
            squeeze = zlib.compressobj(wbits=-15)
            packed = squeeze.compress(content) + squeeze.flush() if method == DEFLATED else content
            sums = struct.pack("<III", zlib.crc32(content), len(packed), len(content))
            head = struct.pack("<HHI", 8, method, 0)
            place = struct.pack("<HHHHHII", 3, 0, 0, 0, 0, 0, len(found))
            directory.append(b"PK\1\2" + bytes(4) + head + sums + place + name)
            found += b"PK\3\4" + bytes(2) + head + bytes(12) + struct.pack("<HH", 3, 0) + name + packed + sums
        listed = b"".join(directory)
        data = found + listed + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 3, 3, len(listed), len(found), 0)
        assert samples(ZipFormat(), data) == [("a", {"x": content, "y": content}), ("b", {"x": content})]

    def test_stored_bytes_that_look_like_a_descriptor_are_read_or_refused(self):
        twelve = bytes(12) + b"PK\3\4"
        assert samples(ZipFormat(), zipped([("a.x", twelve)], streamed=True)) == [("a", {"x": twelve})]
        hidden = b"PK\7\x08" + bytes(12) + b"PK\3\4"
        with pytest.raises(Damaged, match=r"'a.x' is ambiguous"):
            samples(ZipFormat(), zipped([("a.x", hidden)], streamed=True))
        almost = b"1PK\7\x08" + struct.pack("<III", 5, 1, 1) + b"PK\3\4"
        assert samples(ZipFormat(), zipped([("a.x", almost)], streamed=True)) == [("a", {"x": almost})]

    def test_sizes_may_be_in_the_header_as_well_and_the_descriptor_missing(self):
        data = zipped(PAIRS)
        entry = entries(data)
        for at in (0, 39, 75, 1110):
            assert data[at : at + 2] == b"PK"
            data = patched(data, at + 6, "<H", 8)
        for at in entry:
            data = patched(data, at + 8, "<H", 8)
        assert samples(ZipFormat(), data) == EXPECTED

    def test_many_signatures_take_linear_time(self):
        content = b"PK\7\x08" * 200_000
        assert samples(ZipFormat(fields="x"), zipped([("a.x", content)], streamed=True)) == [content]
        members = [(f"a.{number}", b"") for number in range(20_000)]
        assert len(samples(ZipFormat(), zipped(members, streamed=True))[0][1]) == 20_000

    def test_member_without_any_size_is_refused(self):
        data = zipped([("a.x", b"content")], streamed=True)
        found, _ = walked(ZipFormat(), data)
        refused(Damaged, r"'a.x' has no data descriptor", ZipFormat().sample, memoryview(data)[: found.sizes[0] - 1])


class TestRefused:
    @pytest.mark.parametrize(
        ("method", "says"),
        [(12, "bzip2"), (14, "lzma"), (93, "zstd"), (9, "deflate64"), (77, "method 77")],
    )
    def test_other_methods_are_refused_by_name_unless_left_out(self, method, says):
        data = zipped([("a.x", b"1"), ("b.x", b"22")])
        first, _ = entries(data)
        data = patched(patched(data, 8, "<H", method), first + 10, "<H", method)
        refused(Unsupported, f"'a.x' is compressed with {says}.*stored or deflated", walked, ZipFormat(), data)
        assert samples(ZipFormat(skip=("a.*",)), data) == [("b", {"x": b"22"})]
        refused(Unsupported, says, ZipFormat().sample, memoryview(data)[:34])

    def test_real_members_of_other_methods_are_refused(self):
        for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
            refused(Unsupported, "stored or deflated", walked, ZipFormat(), zipped([("a.x", b"1")], method))

    @pytest.mark.parametrize("flag", [1, 1 << 6, 1 << 13])
    def test_encrypted_members_are_refused_by_name(self, flag):
        data = zipped([("a.x", b"1")])
        [entry] = entries(data)
        refused(Unsupported, r"'a.x' is encrypted", walked, ZipFormat(), patched(data, entry + 8, "<H", flag))
        refused(Unsupported, r"'a.x' is encrypted", ZipFormat().sample, memoryview(patched(data, 6, "<H", flag))[:34])

    def test_parts_of_several_disks_are_refused(self):
        data = zipped(PAIRS)
        for at, form in ((-18, "<H"), (-16, "<H"), (-14, "<H")):
            refused(Unsupported, "one part of several", walked, ZipFormat(), patched(data, at, form, 2))
        with pytest.raises(Unsupported, match=r"'a.jpg' is on disk 1"):
            walked(ZipFormat(), patched(data, entries(data)[0] + 34, "<H", 1))
        wide = zipped([(f"{number}.x", b"") for number in range(65536)])
        refused(Unsupported, "one part of 3", walked, ZipFormat(), patched(wide, -26, "<I", 3))

    @pytest.mark.parametrize("data", [b"", b"PK\5\6", bytes(100), zipped(PAIRS)[:-1], zipped(PAIRS) + b"x"])
    def test_files_without_an_end_are_refused(self, data):
        refused(Damaged, "cut short, or not a zip file", walked, ZipFormat(), data)

    def test_number_of_members_beyond_the_directory_is_refused(self):
        data = patched(zipped(PAIRS), -14, "<HH", 60000, 60000)
        refused(Damaged, "declares 60000 members, .* of 204 bytes", walked, ZipFormat(), data)

    def test_ten_million_members_in_a_small_file_are_refused(self):
        data = zipped([(f"{number}.x", b"") for number in range(65536)])
        end = len(data) - 22 - 20 - 56
        refused(Damaged, "declares 10000000 members", walked, ZipFormat(), patched(data, end + 24, "<QQ", 10**7, 10**7))

    def test_wrong_numbers_of_members_are_refused(self):
        refused(
            Damaged, "has 4 members, but .* declares 3", walked, ZipFormat(), patched(zipped(PAIRS), -14, "<HH", 3, 3)
        )

    def test_directory_that_is_not_where_the_end_says_is_refused(self):
        data = zipped(PAIRS)
        refused(Damaged, "beyond the end of the file", walked, ZipFormat(), patched(data, -10, "<I", len(data)))
        refused(Damaged, "beyond the end of the file", walked, ZipFormat(), patched(data, -6, "<I", len(data)))
        refused(Damaged, "no entry of a zip directory", walked, ZipFormat(), patched(data, entries(data)[1], "<I", 0))

    def test_directory_of_gigabytes_is_refused_before_it_is_read(self):
        size = 3 << 30
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, 2 << 30, 0, 0)
        walk = ZipFormat().walk(size)
        ask = next(walk)
        refused(Unsupported, "several zip files", walk.send, memoryview(bytes(ask.stop - ask.start - 22) + end))

    def test_name_longer_than_the_directory_is_refused(self):
        data = zipped(PAIRS)
        with pytest.raises(Damaged, match="ends within the entry"):
            walked(ZipFormat(), patched(data, entries(data)[3] + 28, "<H", 60000))

    def test_members_that_overlap_are_refused(self):
        data = zipped(PAIRS)
        _, second, *_ = entries(data)
        # The same bytes again and again, as in a bomb; and a size that reaches into the next member.
        with pytest.raises(Damaged, match=r"'a.jpg' at byte 0 and 'a.cls' at byte 0 overlap"):
            walked(ZipFormat(), patched(data, second + 42, "<I", 0))
        with pytest.raises(Damaged, match=r"'a.cls' at byte 39 and 'b.jpg' at byte 75 overlap"):
            walked(ZipFormat(), patched(data, second + 20, "<II", 9, 9))

    def test_member_within_the_directory_is_refused(self):
        data = zipped(PAIRS)
        with pytest.raises(Damaged, match=r"'b.cls' at byte .* reaches into the directory"):
            walked(ZipFormat(), patched(data, entries(data)[3] + 42, "<I", len(data) - 40))

    def test_wide_offsets_without_their_field_are_refused(self):
        data = zipped(PAIRS)
        with pytest.raises(Damaged, match="lacks the extra field"):
            walked(ZipFormat(), patched(data, entries(data)[0] + 42, "<I", 0xFFFFFFFF))

    def test_sizes_that_no_compression_reaches_are_refused(self):
        data = zipped([("a.x", b"1" * 100)], DEFLATED)
        [entry] = entries(data)
        with pytest.raises(Damaged, match="declares 4000000000 bytes, too many for"):
            walked(ZipFormat(), patched(data, entry + 24, "<I", 4_000_000_000))
        with pytest.raises(Damaged, match="declares 2000000000 bytes, too many for"):
            ZipFormat().sample(memoryview(patched(data, 22, "<I", 2_000_000_000))[:entry])

    @pytest.mark.parametrize("streamed", [False, True])
    def test_bombs_are_inflated_to_the_stated_size_and_no_further(self, streamed):
        data = zipped([("a.x", bytes(64 << 20))], DEFLATED, streamed=streamed)
        [entry] = entries(data)
        at = entry - 4 if streamed else 22
        for size in (0, 1, 100, (64 << 20) - 1, (64 << 20) + 1):
            with pytest.raises(Damaged, match="no data descriptor" if streamed and not size else "does not decompress"):
                ZipFormat().sample(memoryview(patched(data, at, "<I", size))[:entry])

    def test_garbage_behind_a_deflated_member_is_refused(self):
        data = zipped([("a.x", b"1" * 100)], DEFLATED)
        [entry] = entries(data)
        packed = entry - 33
        longer = patched(data, 18, "<I", packed + 3)[:entry] + b"abc"
        refused(Damaged, "does not decompress to the 100 bytes", ZipFormat().sample, memoryview(longer))
        refused(Damaged, "cannot be decompressed", ZipFormat().sample, memoryview(data[:33] + b"\xff" * packed))

    def test_same_name_twice_is_refused(self):
        with pytest.warns(UserWarning, match="Duplicate"):
            data = zipped([("a.jpg", b"1"), ("a.jpg", b"2")])
        refused(Damaged, r"'a' has the field 'jpg' twice, at bytes 0 and 36", walked, ZipFormat(), data)

    def test_members_of_a_sample_apart_are_refused(self):
        refused(Unsupported, r"'a' are not adjacent", walked, ZipFormat(), zipped([PAIRS[0], PAIRS[2], PAIRS[1]]))


@given(
    st.sampled_from(KINDS),
    st.lists(
        st.tuples(st.sampled_from(["set", "insert", "delete"]), st.floats(0, 1), st.binary(min_size=1, max_size=30)),
        max_size=3,
    ),
)
@settings(max_examples=examples(1500), deadline=None)
def test_damage_is_refused_or_leaves_what_zipfile_reads(kind, changes):
    method, streamed, wide = kind
    data = bytearray(zipped(PAIRS, method, streamed=streamed, wide=wide))
    for how, place, content in changes:
        at = int(place * len(data))
        gone, new = {"set": (1, content[:1]), "insert": (0, content), "delete": (len(content), b"")}[how]
        data[at : at + gone] = new
    try:
        found = flat(samples(ZipFormat(), bytes(data)))
    except (Damaged, Unsupported):
        return
    with contextlib.suppress(
        zipfile.BadZipFile, UnicodeDecodeError, RuntimeError, zlib.error, EOFError, ValueError, OSError
    ):
        theirs = read_by_zipfile(bytes(data))
        assert sorted((name.lower(), value) for name, value in found) == sorted(
            (name.lower(), value) for name, value in theirs
        )


@pytest.mark.parametrize("wide", [False, True])
def test_flag_that_says_whether_sizes_follow_may_be_wrong_but_no_byte_is_lost(wide):
    for content in (b"1", b"", bytes(9)):
        data = zipped([("a.cls", content), ("b.cls", b"2")], streamed=True, wide=wide)
        assert samples(ZipFormat(fields="cls"), patched(data, entries(data)[0] + 8, "<H", 0)) == [content, b"2"]
        with contextlib.suppress(Damaged):
            assert samples(ZipFormat(fields="cls"), patched(data, 6, "<H", 0)) == [content, b"2"]


class TestGaps:
    """Bytes between members that the directory does not name, such as deleted members."""

    def without(self, gone, **options):
        """Return a zip file whose directory lacks the members ``gone``."""
        data = zipped(PAIRS, **options)
        places = [*entries(data), len(data) - 22]
        kept = [data[one:other] for row, (one, other) in enumerate(itertools.pairwise(places)) if row not in gone]
        listed, count = b"".join(kept), len(kept)
        return (
            data[: places[0]]
            + listed
            + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(listed), places[0], 0)
        )

    @pytest.mark.parametrize("streamed", [False, True])
    def test_deleted_member_behind_a_sample_is_not_part_of_it(self, streamed):
        data = self.without({2}, streamed=streamed)
        assert samples(ZipFormat(), data) == [EXPECTED[0], ("b", {"cls": b""})]
        found, _ = walked(ZipFormat(), data)
        assert found.sizes[0] < 200

    def test_deleted_member_within_a_sample_is_refused(self):
        long = [("a.jpg", b"1"), ("a.txt", b"x" * 500), ("a.cls", b"2")]
        data = zipped(long)
        places = [*entries(data), len(data) - 22]
        listed = data[places[0] : places[1]] + data[places[2] : places[3]]
        data = data[: places[0]] + listed + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 2, 2, len(listed), places[0], 0)
        refused(Damaged, r"'a' has unknown bytes between its members, from byte 36 on", walked, ZipFormat(), data)
        refused(Damaged, "unknown bytes", walked, ZipFormat(fields=("jpg", "cls")), data)
        assert samples(ZipFormat(fields="cls"), data) == [b"2"]

    def test_members_far_from_the_end_are_checked_by_their_headers(self):
        members = [(f"{number}.x", bytes(1000)) for number in range(1000)]
        data = zipped(members)
        places = [*entries(data), len(data) - 22]
        gone = {1, 500, 999}
        kept = [data[one:other] for row, (one, other) in enumerate(itertools.pairwise(places)) if row not in gone]
        listed, count = b"".join(kept), len(kept)
        data = (
            data[: places[0]]
            + listed
            + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, count, count, len(listed), places[0], 0)
        )
        found, asks = walked(ZipFormat(), data)
        assert [(key, len(each["x"])) for key, each in samples(ZipFormat(), data)] == [
            (key, 1000) for key in found.keys
        ]
        assert [ask.stop - ask.start for ask in asks[1:]] == [512, 512]

    def test_headers_of_aligned_members_are_read_in_few_requests(self):
        """As alignment leaves them: with fields that are in local headers only."""
        data, listed = b"", b""
        for number in range(200):
            one = zipped([(f"{number}.x", b"%d" % number)])
            [at], padding = entries(one), 4096 - len(data) % 4096
            listed += patched(one, at + 42, "<I", len(data))[at:-22]
            data += patched(one, 28, "<H", padding)[: at - len(str(number))] + bytes(padding) + b"%d" % number
        whole = data + listed + struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 200, 200, len(listed), len(data), 0)
        found, asks = walked(ZipFormat(), whole)
        assert (len(found.offsets), len(asks)) == (200, 9)
        assert [fields["x"] for _, fields in samples(ZipFormat(), whole)] == [b"%d" % number for number in range(200)]
        wider = data[:-3] + bytes(70000) + data[-3:]
        end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 200, 200, len(listed), len(wider), 0)
        refused(Damaged, r"'199\.x'", samples, ZipFormat(), wider + listed + end)


class TestFields:
    def test_bytes_of_another_sample_are_refused(self):
        refused(Damaged, "also hold a member of 'b'", ZipFormat().sample, memoryview(zipped(PAIRS))[:1110])
        refused(Damaged, "hold the field 'jpg' twice", ZipFormat().sample, memoryview(zipped(PAIRS)[:39] * 2))
        refused(Damaged, "no header of a zip member", ZipFormat().sample, memoryview(bytes(100)))
        refused(Damaged, "reaches beyond", ZipFormat().sample, memoryview(zipped(PAIRS))[:38])


def test_zip_files_are_found_by_their_ends(tmp_path):
    (tmp_path / "x.ZIP").write_bytes(zipped(PAIRS, DEFLATED))
    dataset = ps.MapDataset.from_shards(tmp_path, fields=("cls", "jpg"))
    assert [sample["jpg"].size for sample in dataset] == [4, 1000]
    assert dataset.catalog.format == ZipFormat(fields=("cls", "jpg"))


def renamed(data, old, new):
    """Return a zip file whose local header has another name of the same length; the directory keeps its own."""
    at = data.index(old)
    return data[:at] + new + data[at + len(old) :]


def test_local_headers_that_contradict_the_directory_are_refused():
    data = zipped(PAIRS)
    for new in (b"a\\jpg", b"a.jqg", b"c.jpg"):
        refused(Damaged, r"directory has 'a\.jpg' .*own header has", walked, ZipFormat(), renamed(data, b"a.jpg", new))
    for at, form in ((8, "<H"), (14, "<I"), (18, "<I"), (22, "<I")):
        refused(Damaged, "own header has 7", walked, ZipFormat(), patched(data, at, form, 7))


def test_first_member_is_compared_with_the_directory_if_no_other_is_near_the_end():
    data = zipped([(f"{number}.bin", bytes(600 << 10)) for number in range(3)])
    refused(Damaged, r"own header has '9\.bin'", walked, ZipFormat(), renamed(data, b"0.bin", b"9.bin"))


def test_end_that_contradicts_its_zip64_record_is_refused():
    wide = zipped([(f"{number}.x", b"") for number in range(65536)])
    assert len(walked(ZipFormat(), wide)[0].offsets) == 65536
    with pytest.raises(Damaged, match="the end of the zip file states 5 where its zip64 record states 65536"):
        walked(ZipFormat(), patched(wide, -14, "<HH", 5, 5))
