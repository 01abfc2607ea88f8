"""Tar files: the samples that tarfile finds, by ranges; what has no range of its own is refused by name."""

import gzip
import io
import itertools
import tarfile

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.data.shards.tar import TarFormat
from penstock.errors import Damaged, Unsupported, Unusable
from tests.amounts import examples
from tests.data.shards.archives import plain, samples, tar, walked
from tests.refusals import refused

FORMS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]
PAIRS = [("a.jpg", b"JPEG"), ("a.cls", b"1"), ("b.jpg", b"x" * 1000), ("b.cls", b"")]


def info(name, kind, **attributes):
    member = tarfile.TarInfo(name)
    member.type = kind
    for each, value in attributes.items():
        setattr(member, each, value)
    return member


@pytest.mark.parametrize("form", FORMS)
def test_neighbours_with_the_same_key_are_one_sample(form):
    assert samples(TarFormat(), tar(PAIRS, form)) == [
        ("a", {"jpg": b"JPEG", "cls": b"1"}),
        ("b", {"jpg": b"x" * 1000, "cls": b""}),
    ]


@pytest.mark.parametrize(
    "digits", [b"00000001750\0", b"00000001750 ", b"000000001750", b"       1750\0", b"        1750"]
)
def test_sizes_with_or_without_an_end_behind_their_digits(digits):
    data = bytearray(tar([("a.jpg", b"x" * 1000), ("b.jpg", b"next")]))
    data[124:136] = digits
    data[148:156] = b" " * 8
    data[148:156] = b"%06o\0 " % sum(data[:512])
    assert samples(TarFormat(), bytes(data)) == [("a", {"jpg": b"x" * 1000}), ("b", {"jpg": b"next"})]


NAMES = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=70)


@given(
    st.lists(st.tuples(st.lists(NAMES, max_size=4), st.lists(st.binary(max_size=1500), max_size=3)), max_size=12),
    st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]),
)
@settings(max_examples=examples(100))
def test_samples_are_those_that_tarfile_reads(drawn, form):
    members = []
    for number, (folders, contents) in enumerate(drawn):
        key = "/".join([*("d" + each for each in folders), f"{number}"])
        members += [(f"{key}.{field}.é", data) for field, data in enumerate(contents)]
    data = tar(members, form)
    found = [(key, field, value) for key, fields in samples(TarFormat(), data) for field, value in fields.items()]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        expected = {each.name: archive.extractfile(each).read() for each in archive}
    assert len(found) == len(members)
    for (name, value), (key, field, got) in zip(members, found, strict=True):
        folder, _, base = name.rpartition("/")
        assert (f"{folder}/" if folder else "") + base.split(".", 1)[0] == key
        assert base.split(".", 1)[1].lower() == field
        assert got == value == expected[name]


PIECES = st.sampled_from(["a", "b", "B", ".", ".", "/", "_", "__", "é", "\udcff", "9" * 47])


@given(
    st.lists(st.lists(PIECES, min_size=1, max_size=5).map("".join), min_size=1, max_size=3),
    st.sampled_from(["", "a", "a.", "9" * 98]),
    st.sampled_from([(), ("b", "b.a")]),
)
@example(["__.__"], "", ())
@settings(max_examples=examples(400))
def test_bytes_of_members_have_the_key_and_fields_of_their_names(ends, beginning, fields):
    form = TarFormat(fields=fields, missing="none" if fields else "error")
    members = [(beginning + end, b"%d" % number) for number, end in enumerate(ends)]
    data = tar(members, tarfile.GNU_FORMAT)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        extent = memoryview(data)[: archive.getmembers()[-1].offset_data + 512]
    key, values, wrong = "", {}, False
    for name, content in members:
        try:
            split = form.split(name, 0)
        except Damaged:
            split, wrong = None, True
        if split is not None:
            wrong = wrong or ((key or bool(values)) and split[0] != key)
            key = split[0]
            if not fields or split[1] in fields:
                wrong = wrong or split[1] in values
                values[split[1]] = content
    if wrong:
        with pytest.raises(Damaged):
            form.sample(extent)
    else:
        assert plain(form.sample(extent)) == (key, {each: values.get(each) for each in fields or values})


def test_a_name_ends_at_the_first_zero():
    block = bytearray(tar([("a.b", b"1")], tarfile.USTAR_FORMAT)[:1024])
    block[:8] = b"ab\0\0\0\0.b"
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    refused(Damaged, r"'ab' at byte 0 has no key", TarFormat().sample, memoryview(block))


def test_large_members_are_not_read_to_find_the_next_header():
    data = tar([(f"{number}.bin", bytes([number]) * (600 << 10)) for number in range(20)])
    found, asks = walked(TarFormat(), data)
    assert len(found.offsets) == 20
    assert sum(ask.stop - ask.start for ask in asks) < len(data) // 50


def test_small_members_are_read_in_few_requests_and_no_byte_twice():
    data = tar([(f"{number}.txt", b"t" * 3000) for number in range(5000)])
    found, asks = walked(TarFormat(), data)
    assert len(found.offsets) == 5000
    assert len(asks) < 12
    assert all(one.stop <= other.start for one, other in itertools.pairwise(asks))


@pytest.mark.parametrize("cut", [1, 511, 1024, 1535, 2047])
def test_truncated_files_are_refused(cut):
    data = tar([("a.txt", b"t" * 300), ("b.txt", b"u" * 600)])[:3072]
    refused(Damaged, "ends within", walked, TarFormat(), data[:-cut])


def test_archive_cut_short_between_two_members_is_refused():
    whole = tar([("a.txt", b"t" * 300), ("b.txt", b"t" * 512)])
    for cut in (900, 1024, 2048):
        with pytest.raises(Damaged, match=rf"{cut} bytes, but does not end.* truncated.*append 1,024 bytes of zeros"):
            walked(TarFormat(), whole[:cut])
    assert len(samples(TarFormat(), whole[:2048] + bytes(512))) == 2


def test_second_archive_behind_the_end_is_refused():
    one = tar([("a.txt", b"t")])
    refused(Damaged, "concatenated", walked, TarFormat(), one + tar([("b.txt", b"t")]))
    refused(Damaged, "concatenated", walked, TarFormat(), one + bytes(9 << 20) + one)


def test_zeros_of_a_large_record_are_read_to_the_end():
    """As of ``tar -b 8192``, whose records have 4 MiB, and of tapes."""
    for size in (4 << 20, 20 << 20):
        data = tar([("a.txt", b"t")])
        found, asks = walked(TarFormat(), data + bytes(size - len(data)))
        assert (found.keys, max(ask.stop - ask.start for ask in asks)) == (["a"], min(size - (128 << 10), 8 << 20))


def test_header_with_a_wrong_sum_is_refused():
    data = bytearray(tar(PAIRS))
    data[1024] ^= 1
    refused(Damaged, "no tar header is at byte 1024", walked, TarFormat(), bytes(data))


def test_compressed_file_is_refused_with_advice():
    refused(Unsupported, r'format="tar\.gz"', walked, TarFormat(), b"\x1f\x8b\x08" + bytes(2000))
    # Shorter than a header, and zstd.
    for kind, data in ("gzip", gzip.compress(b"x")), ("zstd", b"\x28\xb5\x2f\xfd" + bytes(2000)):
        refused(Unsupported, f"compressed with {kind}", walked, TarFormat(), data)


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (tarfile.LNKTYPE, "'l.jpg' at byte 1024 is a hard link"),
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.GNUTYPE_SPARSE, "sparse"),
        (tarfile.FIFOTYPE, "pipe"),
        (b"Z", "type 'Z'"),
    ],
)
def test_links_and_devices_are_refused_by_name(kind, says):
    data = tar([("a.jpg", b"x"), info("l.jpg", kind, linkname="a.jpg")], tarfile.GNU_FORMAT)
    refused(Unsupported, says, walked, TarFormat(), data)
    if kind != tarfile.GNUTYPE_SPARSE:
        assert [key for key, _ in samples(TarFormat(skip=("l.*",)), data)] == ["a"]


def test_sparse_member_of_a_pax_header_is_refused():
    member = tarfile.TarInfo("a.bin")
    member.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}
    refused(Unsupported, "sparse", walked, TarFormat(), tar([member]))


def test_folders_and_webdatasets_meta_members_are_left_out():
    data = tar([info("d/", tarfile.DIRTYPE), ("__meta__/x.json", b"{}"), ("d/a.jpg", b"1")])
    assert samples(TarFormat(), data) == [("d/a", {"jpg": b"1"})]


def test_size_of_nine_gibibytes_is_read_from_base_256_and_from_pax():
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        member = tarfile.TarInfo("huge.bin")
        member.size = 9 << 30
        header = member.tobuf(form)
        size = len(header) + (9 << 30) + 1024
        walk = TarFormat().walk(size)
        ask = next(walk)
        asks = 0
        with pytest.raises(StopIteration) as end:
            while True:
                asks += 1
                data = bytearray(ask.stop - ask.start)
                part = header[ask.start : ask.stop]
                data[: len(part)] = part
                ask = walk.send(memoryview(data))
        found = end.value.value
        assert found.sizes.tolist() == [len(header) + (9 << 30)]
        assert asks <= 3


def test_a_size_beyond_the_file_is_refused_before_memory_is_taken():
    member = tarfile.TarInfo("huge.bin")
    member.size = 1 << 60
    refused(Damaged, r"'huge.bin'", walked, TarFormat(), member.tobuf(tarfile.GNU_FORMAT) + bytes(1024))


def test_global_header_with_a_comment_is_passed_over_and_one_with_a_name_refused():
    comment = tarfile.TarInfo.create_pax_global_header({"comment": "0123456789abcdef"})
    assert samples(TarFormat(), comment + tar([("a.txt", b"t")])) == [("a", {"txt": b"t"})]
    named = tarfile.TarInfo.create_pax_global_header({"path": "x"})
    refused(Unsupported, "global pax header", walked, TarFormat(), named + tar([("a.txt", b"t")]))


class TestFields:
    def test_several_names_are_taken_in_their_order(self):
        assert [[*fields] for _, fields in samples(TarFormat(fields=("cls", "jpg")), tar(PAIRS))] == [
            ["cls", "jpg"]
        ] * 2

    def test_sample_without_a_field_is_an_error_by_default(self):
        with pytest.raises(Damaged, match=r"the sample 'b' has no field 'cls', only jpg"):
            walked(TarFormat(fields=("jpg", "cls")), tar(PAIRS[:3]))

    def test_bytes_of_another_sample_are_refused(self):
        refused(Damaged, "also hold a member of 'b'", TarFormat().sample, memoryview(tar(PAIRS))[:3600])
        with pytest.raises(Damaged):
            TarFormat().sample(memoryview(bytes([255]) * 1024))


class TestKeys:
    @pytest.mark.parametrize(
        ("key", "name", "expected"),
        [
            ("first-dot", "d.e/Track 2.0 (Clean).MP3", ("d.e/Track 2", "0 (clean).mp3")),
            ("last-dot", "d.e/Track 2.0 (Clean).MP3", ("d.e/Track 2.0 (Clean)", "mp3")),
            (r"(?P<key>.*)_(?P<field>[a-z]+)\.npy", "x/7_mask.npy", ("x/7", "mask")),
            (lambda name: (name[:3], name[3:]), "abcdef", ("abc", "def")),
        ],
    )
    def test_rules_split_names(self, key, name, expected):
        [(found, fields)] = samples(TarFormat(key=key), tar([(name, b"1")]))
        assert (found, *fields) == expected

    def test_name_without_a_key_is_refused_unless_left_out(self):
        data = tar([("README", b"hello"), *PAIRS])
        refused(Damaged, r"'README' at byte 0 has no key .*skip=", walked, TarFormat(), data)
        assert len(samples(TarFormat(skip=("README",)), data)) == 2
        assert len(samples(TarFormat(key=lambda name: tuple(name.split(".")) if "." in name else None), data)) == 2

    def test_members_apart_and_fields_twice_are_refused_with_their_places(self):
        with pytest.raises(Unsupported, match=r"'a' are not adjacent: .*'a.txt' at byte"):
            walked(TarFormat(), tar([PAIRS[0], PAIRS[2], ("a.txt", b"")]))
        with pytest.raises(Damaged, match=r"'a' has the field 'jpg' twice, at bytes 0 and 1024"):
            walked(TarFormat(), tar([("a.jpg", b"1"), ("a.JPG", b"2")]))

    @pytest.mark.parametrize(
        "arguments", [{"key": "(x"}, {"key": "x"}, {"key": 5}, {"fields": 5}, {"fields": ("a", "a")}, {"missing": "x"}]
    )
    def test_wrong_arguments_are_refused(self, arguments):
        with pytest.raises(Unusable):
            TarFormat(**arguments)


def pax(records, size=1, name=b"0.jpg"):
    """Return a tar file of one member with a pax header of these records."""

    def header(title, length, kind):
        found = bytearray(512)
        found[: len(title)] = title
        found[124:136], found[156:157], found[257:265] = b"%011o\0" % length, kind, b"ustar\x0000"
        found[148:156] = b" " * 8
        found[148:156] = b"%06o\0 " % sum(found)
        return bytes(found)

    block = records + bytes(-len(records) % 512)
    return header(b"pax", len(records), b"x") + block + header(name, size, b"0") + b"x" * size + bytes(1535 - size)


@pytest.mark.parametrize(
    "records",
    [
        b"10 a=bcde\n" + bytes(30),
        b"10 a=bcde\n0 a=b\n",
        b"10 a=bcde\n00",
        b"10 a=bcde\n1 ",
        b"10 a=bcde\n99 a=b\n",
        b"10 abcdef\n",
        b"9" * 30 + b" a=b\n",
    ],
)
def test_pax_records_that_are_invalid_are_refused(records):
    refused(Damaged, "invalid record", walked, TarFormat(), pax(records))


def test_sizes_and_names_that_contradict_each_other_are_refused():
    assert samples(TarFormat(), pax(b"9 size=1\n")) == [("0", {"jpg": b"x"})]
    refused(Damaged, "1 bytes by its header and 0 by its pax records", walked, TarFormat(), pax(b"9 size=0\n"))
    twice = pax(b"14 path=a.txt\n")[:1024] + pax(b"14 path=b.txt\n")
    refused(Damaged, r"name it 'a\.txt' and 'b\.txt'", walked, TarFormat(), twice)


def test_many_extensions_before_a_member_are_refused():
    with pytest.raises(Damaged, match="more than 16 extensions"):
        walked(TarFormat(), pax(b"9 size=1\n")[:1024] * 5000 + pax(b"9 size=1\n"))


def test_empty_file_is_refused_and_an_empty_archive_is_not():
    refused(Damaged, "has 0 bytes", walked, TarFormat(), b"")
    assert len(walked(TarFormat(), bytes(10240))[0].offsets) == 0
