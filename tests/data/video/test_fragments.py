"""Frames of fragmented MP4 files: listed by ``moof`` boxes anywhere in the file, and bounded by what the file holds."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.data.video.frames import tabulate
from penstock.errors import Damaged, Unsupported
from tests.amounts import examples
from tests.data.video.files import OPEN_H264, encode, kind, record, remux, whole
from tests.data.video.moov import box, check_damaged, file, full, refused, walked
from tests.data.video.test_audio import decoded

TREX = (512, 0, 0x01010000)


def head(*other: bytes, trex=TREX, keys=(), **boxes: bytes) -> bytes:
    """Return ``ftyp`` and a ``moov`` without frames, whose fragments have the defaults ``trex``."""
    empty = file(
        (),
        per_chunk=(0,),
        keys=keys,
        stts=box("stts", bytes(8)),
        stsc=box("stsc", bytes(8)),
        stco=box("stco", bytes(8)),
        **boxes,
    )
    at = empty.index(b"moov") - 4
    moov = empty[at + 8 :] + box("mvex", full("trex", 1, 1, *trex), *other)
    return empty[: empty.index(b"mdat") - 4] + box("moov", moov)


def trun(  # noqa: PLR0913
    sizes, *, place=None, steps=None, flags=None, shifts=None, first=None, count=None, version=0
) -> bytes:
    columns = [each for each in (steps, sizes, flags, shifts) if each is not None]
    marks = sum(
        mark
        for mark, each in zip((0x100, 0x200, 0x400, 0x800), (steps, sizes, flags, shifts), strict=True)
        if each is not None
    )
    fields = [] if place is None else [place]
    fields += [] if first is None else [first]
    marks |= (place is not None) | (first is not None) << 2
    rows = b"".join(struct.pack(">I", each & 0xFFFFFFFF) for row in zip(*columns, strict=True) for each in row)
    number = len(sizes) if count is None else count
    return box("trun", struct.pack(f">2I{len(fields)}i", version << 24 | marks, number, *fields), rows)


def traf(*runs: bytes, track=1, tfdt=None, flags=0x20000, fields=()) -> bytes:
    times = b"" if tfdt is None else box("tfdt", struct.pack(">IQ", 1 << 24, tfdt))
    return box("traf", box("tfhd", struct.pack(f">2I{len(fields)}I", flags, track, *fields)), times, *runs)


def moof(*trafs: bytes) -> bytes:
    return box("moof", full("mfhd", 1), *trafs)


def fragment(sizes, **options) -> bytes:
    """Return a fragment and its data; places are counted from the fragment."""
    tfdt = options.pop("tfdt", None)
    place = len(moof(traf(trun(sizes, place=0, **options), tfdt=tfdt))) + 8
    return moof(traf(trun(sizes, place=place, **options), tfdt=tfdt)) + box("mdat", bytes(sum(sizes)))


KEY = {"first": 0x02000000}
SIZES = st.lists(st.lists(st.integers(1, 900), min_size=1, max_size=8), min_size=1, max_size=8)


@given(SIZES, st.data())
@settings(max_examples=examples(60))
def test_frames_are_those_that_were_written(groups, data):
    steps = [data.draw(st.lists(st.integers(1, 900), min_size=len(each), max_size=len(each))) for each in groups]
    shifts = [data.draw(st.lists(st.integers(-500, 500), min_size=len(each), max_size=len(each))) for each in groups]
    gap, stated = data.draw(st.integers(0, 400)), data.draw(st.booleans())
    begins = np.cumsum([0, *map(sum, steps)])[:-1] + gap * np.arange(len(groups))
    written = head()
    places = []
    for sizes, step, shift, begin in zip(groups, steps, shifts, begins.tolist(), strict=True):
        tfdt = begin if stated else None
        written += fragment(sizes, steps=step, shifts=shift, tfdt=tfdt, version=1, **KEY)
        places += (len(written) - sum(sizes) + np.cumsum([0, *sizes[:-1]])).tolist()
    track, _ = walked(written)
    assert track.sizes.tolist() == [each for sizes in groups for each in sizes]
    assert track.offsets.tolist() == places
    assert track.keys.tolist() == np.cumsum([0, *map(len, groups)])[:-1].tolist()
    apart = gap if stated else 0
    ticks = np.cumsum([0, *(each for step in steps for each in step)])[:-1]
    ticks = ticks + np.repeat(apart * np.arange(len(groups)), [*map(len, groups)])
    assert track.ticks.tolist() == (ticks + [each for shift in shifts for each in shift]).tolist()


def test_places_are_counted_from_the_fragment_the_file_or_the_frames_before():
    other = traf(trun([50, 60]), track=2)
    mine = traf(trun([10, 20], **KEY), trun([30], first=0), flags=0)
    implied = moof(other, mine)
    written = head(full("trex", 2, 1, 512, 0, 0)) + implied
    at = len(written) - len(implied)
    # Without places, data begins at the fragment, and goes on through its tracks.
    track, _ = walked(written + box("mdat", bytes(400)))
    assert track.offsets.tolist() == [at + 110, at + 120, at + 140]
    assert track.keys.tolist() == [0, 2]
    stated = moof(traf(trun([10, 20], place=7, **KEY), flags=0x1, fields=(0, 700)))
    track, _ = walked(head() + stated + box("mdat", bytes(900)))
    assert track.offsets.tolist() == [707, 717]


def test_values_of_a_frame_are_of_its_run_its_fragment_or_its_track():
    written = head(trex=(512, 9, 0))
    written += moof(traf(trun(None, place=200, count=3), tfdt=0)) + box("mdat", bytes(400))
    first = len(written)
    written += moof(traf(trun(None, place=200, count=2, first=0), flags=0x20038, fields=(100, 40, 0x01010000)))
    track, _ = walked(written + box("mdat", bytes(400)))
    assert track.sizes.tolist() == [9, 9, 9, 40, 40]
    assert track.keys.tolist() == [0, 1, 2, 3]
    assert track.ticks.tolist() == [0, 512, 1024, 1536, 1636]
    assert track.offsets[3:].tolist() == [first + 200, first + 240]


def test_edit_list_hides_frames_also_of_fragments():
    options = {"avoid_negative_ts": "disabled", "movflags": "frag_keyframe+delay_moov"}
    data = remux(kind("h264, moov in front"), from_s=0.55, until_s=1.7, options=options)
    found = tabulate(walked(data)[0])
    # FFmpeg shows these five frames, at negative times; without fragments it hides them, and begins with the sixth.
    times, _ = whole(data)
    assert found.frames == len(times) - 5 == np.count_nonzero(times > 0)
    assert np.abs(found.seconds_of(np.arange(found.frames)) - (times[5:] - times[5])).max() < 1e-6


def test_negative_offsets_leave_the_first_frame_at_the_beginning():
    data = encode(g=15, flags="frag_keyframe+empty_moov+negative_cts_offsets", options=OPEN_H264)
    seconds = tabulate(walked(data)[0]).seconds_of(np.arange(60))
    # FFmpeg shows all frames later by the largest offset.
    times, _ = whole(data)
    assert np.abs(seconds - (times - times[0])).max() < 1e-6


@pytest.mark.parametrize("flags", ["frag_keyframe+delay_moov", "frag_every_frame+delay_moov", "dash+delay_moov"])
def test_audio_is_that_of_the_file_without_fragments(flags):
    plain, data = (
        record("aac", "mp4", "fltp"),
        record("aac", "mp4", "fltp", flags={"movflags": flags, "frag_size": "4096"}),
    )
    expected, found = walked(plain, audio=True)[0], walked(data, audio=True)[0]
    assert found.frames >= expected.frames > 60_000
    # Without a duration in the edit list, the padding of the last packet is heard.
    samples = decoded(data, found, 0, expected.frames)
    assert np.array_equal(samples, decoded(plain, expected, 0, expected.frames))


def test_clips_of_fragmented_files_train_and_name_the_file_that_was_cut(tmp_path):
    (tmp_path / "a.mp4").write_bytes(kind("fragments"))
    (tmp_path / "b.mp4").write_bytes(kind("h264, moov in front"))
    clips = ps.VideoDataset.from_shards(f"{tmp_path}/", frames=12, transform=lambda clip: clip.frames)
    first, second = ps.DataLoader(clips, 5)
    for name, clips_of_file in (("fragments", first), ("h264, moov in front", second)):
        expected = whole(kind(name))[1].reshape(5, 12, 64, 96, 3).transpose(0, 1, 4, 2, 3)
        assert np.array_equal(clips_of_file.numpy(), expected)
    (tmp_path / "a.mp4").write_bytes(kind("fragments")[:-9])
    with pytest.raises(Damaged, match=r"cut short .*a\.mp4"):
        ps.VideoDataset.from_shards(f"{tmp_path}/")


def many(count, size, runs):
    """Return a fragment of runs that list nothing of their frames."""
    return head(trex=(512, size, 0)) + moof(traf(*[trun(None, count=count)] * runs)) + box("mdat", bytes(999))


REFUSED = {
    "frames beyond the file": (lambda: head() + fragment([10, 20], **KEY)[:-1] + b"", Damaged, "cut short"),
    "a fragment that claims more": (
        lambda: head() + moof(traf(trun([10], place=100, count=9))) + box("mdat", bytes(99)),
        *(Damaged, "claims 9 frames, more than its box has"),
    ),
    "10^8 frames alike": (lambda: many(10**8, 1, 1), Damaged, "claims 100000000 frames"),
    "frames alike beyond the file": (lambda: many(1 << 16, 1, 1), Damaged, "frames to byte .* cut short"),
    "runs of empty frames": (lambda: many(1 << 16, 0, 400), Unsupported, "more than 4194304 frames"),
    "places before the file": (
        lambda: head() + moof(traf(trun([10], place=-(1 << 30)))) + box("mdat", bytes(99)),
        *(Unsupported, "overlap, or are out of order"),
    ),
    "overlapping fragments": (
        lambda: (
            head() + moof(traf(trun([10, 20], place=300))) + moof(traf(trun([10], place=100))) + box("mdat", bytes(999))
        ),
        *(Unsupported, "overlap, or are out of order"),
    ),
    "no key frame": (lambda: head() + fragment([10, 20]), Unsupported, "no key frame"),
    "another track alone": (
        lambda: head() + moof(traf(trun([10], place=100), track=7)) + box("mdat", bytes(99)),
        *(Unsupported, "no frames, neither in moov nor in fragments"),
    ),
    "without fragments": (head, Unsupported, "video track has no frames"),
    "a second description": (
        lambda: head() + moof(traf(trun([10], place=100), flags=0x20002, fields=(2,))) + box("mdat", bytes(99)),
        *(Unsupported, "several sample descriptions"),
    ),
    "a header that is cut short": (
        lambda: head() + moof(traf(flags=0x20038, fields=(1,))) + box("mdat", bytes(99)),
        *(Damaged, "'tfhd' of a fragment at byte .* is cut short"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_lying_fragments_are_refused_by_name_in_bounded_memory(name):
    make, error, says = REFUSED[name]
    data = make()
    refused(lambda: tabulate(walked(data)[0]), error, says, 256 << 20)


@pytest.mark.parametrize("name", ["fragments", "fragments of sound and video", "fragment of each frame"])
def test_damaged_fragments_give_an_error_or_a_table_within_the_file(name, seed):
    data = kind(name)
    boxes = [at for at in range(len(data)) if data[at : at + 4] in (b"moof", b"mvex")]

    def check(changed):
        found = tabulate(walked(changed)[0])
        pieces = found.pieces(*found.needs(np.arange(found.frames)))
        assert 0 <= pieces[0][0] <= pieces[-1][1] <= len(changed)

    check_damaged(data, [at + ahead for at in boxes for ahead in range(120)], f"{seed} {name}", check)
