"""The boxes of MP4 files: true tables are found; lying ones are refused by name, in bounded time and memory."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.data.video.frames import tabulate
from penstock.errors import Damaged, Unsupported
from tests.amounts import examples
from tests.data.video.files import encode, kind, remux
from tests.data.video.moov import box, check_damaged, entry, file, full, refused, table, walked


def patched(name, old, new, nth=1):
    data = kind(name)
    at = -1
    for _ in range(nth):
        at = data.index(old, at + 1)
    return data[:at] + new + data[at + len(old) :]


def other_form(form, codec="h264, moov at the end"):
    return remux(kind(codec), form=form)


def endless():
    return box("ftyp", b"isom\0\0\2\0isom") + b"".join(box("free", bytes(1 << 20)) for _ in range(40))


CUT = kind("h264, moov at the end")
FRONT = kind("h264, moov in front")
REFUSED = {
    "cut before moov": (lambda: CUT[: len(CUT) - 3000], Damaged, "file ends at .*cut short|cut short"),
    "cut within the frames": (lambda: FRONT[: len(FRONT) - 9], Damaged, "cut short"),
    "without moov": (lambda: box("ftyp", b"isom") + box("mdat", bytes(99)), Damaged, "no moov box in its 119 bytes"),
    "empty": (lambda: bytes(4), Damaged, "begins with"),
    "one byte of zeros": (lambda: bytes(20), Damaged, "begins with"),
    "endless boxes": (endless, Damaged, "found no moov box in 8 reads"),
    "text": (lambda: b"<html>not a video</html>" * 9, Damaged, "begins with b'<html>no'"),
    "matroska": (lambda: other_form("matroska"), Unsupported, "Matroska or WebM.*ffmpeg -i"),
    "webm": (lambda: other_form("webm", "vp9"), Unsupported, "Matroska or WebM.*ffmpeg -i"),
    "avi": (lambda: other_form("avi", "mpeg4 with B-frames"), Unsupported, "is AVI.*ffmpeg -i"),
    "wav": (
        lambda: b"RIFF\x40\0\0\0WAVEfmt " + bytes(60),
        Unsupported,
        "is WAV.* no video track",
    ),
    "flac": (lambda: b"fLaC" + bytes(60), Unsupported, r"is FLAC, .*-c copy OUT\.mp4, or read whole files"),
    "mp3": (lambda: b"ID3\4" + bytes(60), Unsupported, r"is MP3, .*read whole files by ps\.MapDataset"),
    "transport stream": (lambda: encode(form="mpegts"), Unsupported, "MPEG transport stream.*ffmpeg -i"),
    "fragments alone": (lambda: box("styp", b"msdh") + box("moof", bytes(8)), Unsupported, "segment without its moov"),
    "encrypted": (lambda: patched("h264, moov in front", b"avc1", b"encv", 2), Unsupported, "is encrypted"),
    "protected": (
        lambda: file(stsd=box("stsd", struct.pack(">II", 0, 1), entry("avc1", box("sinf", b"")))),
        *(Unsupported, "is encrypted"),
    ),
    "unknown codec": (
        lambda: file(stsd=box("stsd", struct.pack(">II", 0, 1), entry("dvh1"))),
        *(Unsupported, "codec 'dvh1' is not supported, only avc1"),
    ),
    "two descriptions": (
        lambda: file(stsd=box("stsd", struct.pack(">II", 0, 2), entry(), entry())),
        *(Unsupported, "2 sample descriptions"),
    ),
    "description that changes": (
        lambda: file(per_chunk=(1, 2), stsc=table("stsc", [(1, 1, 1), (2, 2, 2)])),
        *(Unsupported, "several sample descriptions"),
    ),
    "without setup": (
        lambda: file(stsd=box("stsd", struct.pack(">II", 0, 1), entry("avc1", box("pasp", bytes(8))))),
        *(Damaged, "no box 'avcC'"),
    ),
    "frames elsewhere": (
        lambda: file(dinf=box("dinf", box("dref", struct.pack(">II", 0, 1), full("url ", head=0)))),
        *(Unsupported, "in another file"),
    ),
    "no video": (lambda: file(handler="soun"), Unsupported, "no video track"),
    "no frames": (lambda: file(stsz=full("stsz", 0, 0)), Unsupported, "no frames"),
    "no key frames": (lambda: file(keys=()), Unsupported, "no key frame"),
    "key frames beyond": (lambda: file(keys=(1, 9)), Damaged, "key frames .* do not ascend within its 3"),
    "key frames twice": (lambda: file(keys=(2, 2)), Damaged, "key frames .* do not ascend"),
    "10^8 alike": (lambda: file(stsz=full("stsz", 1, 10**8)), Damaged, "claims 100000000 frames of 1 bytes"),
    "10^8 listed": (lambda: file(stsz=full("stsz", 0, 10**8)), Damaged, "table of 100000000 rows is longer"),
    "2^32 durations": (lambda: file(stts=table("stts", [((1 << 32) - 1, 1)])), Damaged, "3 frames, and durations of"),
    "endless durations": (lambda: file(stts=table("stts", [], count=1 << 31)), Damaged, "table of 2147483648 rows"),
    "other composition": (lambda: file(shifts=(0, 1)), Damaged, "3 frames, and composition offsets of 2"),
    "more in chunks": (
        lambda: file(stsc=table("stsc", [(1, 1 << 31, 1)])),
        Damaged,
        "chunks .* have 2147483648 frames",
    ),
    "chunks in circles": (
        lambda: file(stsc=table("stsc", [(1, 1, 1), (2, 1, 1), (1, 1, 1)])),
        *(Damaged, "chunks of the video track are not in order"),
    ),
    "no chunks": (lambda: file(stsc=table("stsc", [])), Damaged, "chunks of the video track are not in order"),
    "chunks beyond": (lambda: file(at=1 << 20), Damaged, "begin beyond the end of the file"),
    "chunks beyond 2^63": (
        lambda: file(stco=table("co64", [((1 << 64) - 40,)], "Q")),
        *(Damaged, "begin beyond the end of the file"),
    ),
    "last frame beyond": (lambda: file(stsz=full("stsz", 0, 3, 10, 20, 1 << 20)), Damaged, "cut short"),
    "overlapping frames": (lambda: file(per_chunk=(1, 1, 1), gap=-5), Unsupported, "overlap"),
    "compact sizes": (lambda: file(extra=full("stz2", 4, 3)), Unsupported, "stz2"),
    "box beyond its parent": (lambda: file(extra=struct.pack(">I4s", 1 << 30, b"sdtp")), Damaged, "ends outside"),
    "thousands of boxes": (lambda: file(extra=box("free") * 600), Damaged, "more than 512 others"),
    "scale of 0": (lambda: file(mdhd=full("mdhd", 0, 0, 0, 0, 0)), Damaged, "time scale"),
    "two edits": (lambda: file(edits=[(10, 0, 1 << 16), (10, 600, 1 << 16)]), Unsupported, "edit list of 2 parts"),
    "edit that slows": (lambda: file(edits=[(10, 0, 1 << 15)]), Unsupported, "changes its speed"),
    "edit without frames": (lambda: file(edits=[(10, 1 << 30, 1 << 16)]), Unsupported, "shows no frame"),
    "endless edits": (
        lambda: file(edits=[(1, -1, 1 << 16)], mvhd=full("mvhd", 0, 0, 0, *[0] * 21)),
        *(Damaged, "time scale"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_file_that_cannot_be_read_is_refused_by_name(name):
    make, error, says = REFUSED[name]
    data = make()
    refused(lambda: tabulate(walked(data)[0]), error, says)


SIZES = st.lists(st.integers(0, 2000), min_size=1, max_size=60)


@given(SIZES, st.data())
@settings(max_examples=examples(100))
def test_tables_are_those_that_were_written(sizes, data):
    n = len(sizes)
    steps = data.draw(st.lists(st.integers(1, 3000), min_size=n, max_size=n))
    shifts = data.draw(st.one_of(st.just([]), st.lists(st.integers(-5000, 5000), min_size=n, max_size=n)))
    keys = data.draw(st.one_of(st.none(), st.sets(st.integers(1, n), min_size=1).map(sorted)))
    cuts = data.draw(st.sets(st.integers(1, n)).map(sorted))
    per = np.diff([0, *cuts, n]).tolist()
    gap, front, wide = data.draw(st.integers(0, 9)), data.draw(st.booleans()), data.draw(st.booleans())
    written = file(sizes, per_chunk=per, gap=gap, steps=steps, shifts=shifts, keys=keys, front=front, wide=wide)
    track, asked = walked(written)
    assert len(asked) == 1 + (len(written) > 64 << 10)
    assert track.sizes.tolist() == sizes
    assert track.keys.tolist() == [each - 1 for each in keys or range(1, n + 1)]
    begin = int(track.offsets[0])
    chunk = np.repeat(np.arange(len(per)), per)
    assert (track.offsets - begin).tolist() == (np.cumsum(sizes) - sizes + gap * (chunk - chunk[0])).tolist()
    assert track.ticks.tolist() == [sum(steps[:at]) + (shifts or [0] * n)[at] for at in range(n)]
    assert written[begin : begin + sizes[0]] == bytes(
        each % 251 for each in range(begin - written.index(b"mdat") - 4, begin - written.index(b"mdat") - 4 + sizes[0])
    )


@pytest.mark.parametrize(
    "name", ["sound after", "hevc, open groups", "av1, g=2", "trimmed by an edit list", "two video tracks"]
)
def test_damaged_file_gives_an_error_or_a_table_within_the_file(name, seed):
    data = kind(name)
    at = data.index(b"moov") - 4

    def check(changed):
        found = tabulate(walked(changed)[0])
        frames = np.arange(found.frames)
        pieces = found.pieces(*found.needs(frames))
        assert 0 <= pieces[0][0] <= pieces[-1][1] <= len(changed)
        for first, stop in zip(*found.needs(frames[:3]), strict=True):
            ranks = found.ranks_of(first, stop).tolist()
            assert len(ranks) == len({*ranks})

    check_damaged(data, range(at, at + int.from_bytes(data[at : at + 4], "big")), f"{seed} {name}", check)


def test_video_track_is_chosen_by_its_id():
    data = kind("two video tracks")
    first, second = (walked(data, track=number)[0] for number in (1, 2))
    assert [len(each.keys) for each in (first, second)] == [5, 30]
    with pytest.raises(Unsupported, match=r"no video track 7, and its video tracks are \[1, 2\]"):
        walked(data, track=7)


def test_rotation_and_color_are_read():
    assert walked(kind("rotated"))[0].setup.rotation == 90
    assert walked(kind("h264, moov in front"))[0].setup.rotation == 0
    color = box("colr", b"nclx" + struct.pack(">3HB", 9, 16, 9, 0x80))
    data = file(stsd=box("stsd", struct.pack(">II", 0, 1), entry("vp09", color)))
    assert walked(data)[0].setup.color == (9, 16, 9, 2)


def test_frames_presented_before_the_first_key_frame_are_left_out():
    found = tabulate(walked(file(sizes=(9,) * 5, keys=(1, 4), shifts=(1024, -512, 0, 0, 0)))[0])
    # In the order of presentation: 1, 0 and 2 at once, 3, 4; decoders drop 1, which needs a group before the file.
    assert found.samples_of(np.arange(found.frames)).tolist() == [0, 2, 3, 4]
    with pytest.raises(Damaged, match="no key frame before it"):
        tabulate(walked(file(keys=(3,), shifts=(9999, 0, 0)))[0])
