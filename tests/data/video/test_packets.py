"""Frames decoded from ranges are bit-equal to those of the whole file, at the same times, in every kind of file."""

import io

import av
import numpy as np
import pytest

from penstock.data.video.frames import tabulate
from penstock.data.video.packets import HeldBytes, decode_frames
from penstock.errors import Damaged, Unsupported
from tests.data.video.files import KINDS, encode, kind, number_in, whole
from tests.data.video.moov import file, walked


def held_of(data, pieces):
    return HeldBytes([start for start, _ in pieces], [memoryview(data)[start:stop] for start, stop in pieces])


def decoded(data, table, frames):
    frames = np.asarray(frames)
    return decode_frames(table, held_of(data, table.pieces(*table.needs(frames))), frames)


@pytest.mark.parametrize("name", KINDS)
def test_frames_and_times_are_those_of_the_whole_file(name):
    data = kind(name)
    track, asked = walked(data)
    table = tabulate(track)
    seconds, expected = whole(data)
    everything = np.arange(len(seconds))
    assert table.frames == len(seconds)
    assert np.abs(table.seconds_of(everything) - seconds).max() < 1e-6
    assert len(asked) == 1 + (len(data) > 64 << 10 and data.index(b"moov") > 64 << 10)
    runs = [[at] for at in range(0, table.frames, 3)]
    runs += [range(at, min(at + 8, table.frames)) for at in range(0, table.frames, 7)]
    runs += [range(at, min(at + 30, table.frames), 5) for at in range(0, table.frames, 11)]
    for frames in [*runs, [7, 3, 3, 9], everything]:
        for picture, number in zip(decoded(data, table, frames), frames, strict=True):
            assert np.array_equal(picture, expected[number]), f"frame {number} of {[*frames]}"
    first = 17 if name == "trimmed by an edit list" else 0
    if name != "concatenated":
        assert [number_in(each) for each in expected] == [*range(first, first + table.frames)]


def test_memory_of_frames_is_used_again_when_nothing_refers_to_it():
    data = kind("h264, moov in front")
    table = tabulate(walked(data)[0])
    first = decoded(data, table, range(8))
    kept, place = first[2:4], first.ctypes.data
    del first
    assert decoded(data, table, range(8, 16)).ctypes.data != place
    expected = whole(data)[1]
    assert np.array_equal(kept, expected[2:4])
    del kept
    assert decoded(data, table, range(16, 24)).ctypes.data == place


def test_times_lead_to_frames_with_their_distance():
    for name in ("h264, open groups", "variable rate", "video delayed"):
        table = tabulate(walked(kind(name))[0])
        seconds = table.seconds_of(np.arange(table.frames))
        frames, distance = table.nearest(seconds + 1e-4)
        assert frames.tolist() == [*range(table.frames)]
        assert np.allclose(distance, 1e-4)
        frames, distance = table.nearest(np.array([-5.0, 99.0]))
        assert frames.tolist() == [0, table.frames - 1]
        assert np.allclose(distance, [5 + seconds[0], 99 - seconds[-1]])
        middle = (seconds[10] + seconds[11]) / 2
        assert table.nearest(np.array([middle - 1e-6, middle + 1e-6]))[0].tolist() == [10, 11]


@pytest.mark.parametrize("name", ["hevc, open groups", "sound before", "av1, g=2", "concatenated"])
def test_ranges_and_places_are_those_of_the_packets(name):
    data = kind(name)
    table = tabulate(walked(data)[0])
    with av.open(io.BytesIO(data)) as container:
        packets = [(each.pos, each.size) for each in container.demux(video=0) if each.size]
    places, ends = table.places_of(0, len(table.sizes))
    assert [*zip(places.tolist(), (ends - places).tolist(), strict=True)] == packets
    assert [table.place_of(at) for at in range(len(packets))] == places.tolist()
    for first in range(0, len(packets), 7):
        some = table.places_of(first, min(first + 9, len(packets)))
        assert [each.tolist() for each in some] == [each[first : first + 9].tolist() for each in (places, ends)]
    frames = np.arange(table.frames)
    for at in frames[::5].tolist():
        [first], [stop] = needed = table.needs(frames[at : at + 1])
        assert table.pieces(*needed) == [(places[first], ends[stop - 1])]


def test_ranges_with_wide_gaps_are_read_by_themselves():
    table = tabulate(walked(file([7000] * 30, keys=[1, 11, 21]))[0])
    base = table.place_of(0)
    for frames, places in (
        ([0, 10], [(0, 77_000)]),
        ([0, 12], [(0, 91_000)]),
        ([0, 25], [(0, 7000), (140_000, 182_000)]),
        ([29, 5], [(0, 42_000), (140_000, 210_000)]),
    ):
        found = table.pieces(*table.needs(np.array(frames)))
        assert [(start - base, stop - base) for start, stop in found] == places
    data = kind("prores")
    table, far = tabulate(walked(data)[0]), np.array([59, 0])
    assert len(table.pieces(*table.needs(far))) == 2
    assert np.array_equal(decoded(data, table, far), whole(data)[1][far])


def test_lost_bytes_raise_damaged_and_never_give_a_neighbour():
    data = bytearray(kind("h264, g=2 without B-frames"))
    table = tabulate(walked(bytes(data))[0])
    places, ends = table.places_of(0, len(table.sizes))
    data[places[4] : ends[4]] = bytes(ends[4] - places[4])
    with pytest.raises(Damaged, match=r"cannot decode frames 4 to 5|frame 4 is missing"):
        decoded(bytes(data), table, [4, 5])
    assert number_in(decoded(bytes(data), table, [6])[0]) == 6


def test_picture_that_changes_its_size_is_refused(monkeypatch):
    small = kind("vp9")
    monkeypatch.setattr("tests.data.video.files.HEIGHT", 48)
    large = encode("libvpx-vp9", count=4, options={"cpu-used": "8", "deadline": "realtime"})
    table, other = (tabulate(walked(each)[0]) for each in (small, large))
    places, ends = other.places_of(0, 1)
    # A key frame of another size in the place of the second group's.
    start = int(table.places_of(12, 13)[0][0])
    packet = large[places[0] : ends[0]]
    sizes = table.sizes.copy()
    sizes[12] = len(packet)
    with pytest.raises(Unsupported, match="picture changes from 96x64 to 96x48 within the clip"):
        decoded(small[:start] + packet + bytes(9999), table._replace(sizes=sizes), [11, 12])
