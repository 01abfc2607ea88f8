"""Small MP4 files of some frames: any decoder finds the same frames there, at the same distances in time."""

import io

import av
import numpy as np
import pytest

from penstock.data.video.frames import tabulate
from penstock.data.video.packets import HeldBytes, decode_frames
from penstock.data.video.small import make_small_file, read_small_file
from tests.data.video.files import KINDS, kind, whole
from tests.data.video.moov import walked


def made(name, frames, *, everything=False):
    """Return the small file and the places of frames, from the bytes that they need, or from the whole file."""
    data = kind(name)
    table, frames = tabulate(walked(data)[0]), np.array(frames)
    pieces = [(0, len(data))] if everything else table.pieces(*table.needs(frames))
    held = HeldBytes([start for start, _ in pieces], [memoryview(data)[start:stop] for start, stop in pieces])
    return make_small_file(table, held, frames)


@pytest.mark.parametrize("everything", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_frames_of_the_small_file_are_those_of_the_whole(name, everything):
    seconds, expected = whole(kind(name))
    last = len(seconds) - 1
    for frames in ([0], [last], [13, 14, 15, 16], [20, 17, 29], [1, last], [*range(last + 1)]):
        small, places = made(name, frames, everything=everything)
        at, pictures = whole(small)
        assert np.array_equal(pictures[places], expected[frames])
        assert np.abs(np.diff(at[places]) - np.diff(seconds[frames])).max(initial=0) < 1e-6
        view = memoryview(small)
        found = decode_frames(read_small_file(view), HeldBytes([0], [view]), np.array(places))
        assert np.array_equal(found, expected[frames])


def test_small_file_has_the_samples_that_are_needed_and_no_others():
    for frames, count in (([12], 1), ([13], 2), ([14, 15], 4), ([0, 25], 3)):
        small, places = made("vp9", frames)
        with av.open(io.BytesIO(small)) as container:
            assert container.streams.video[0].frames == count
            assert container.duration == pytest.approx((frames[-1] + 1 - frames[0] // 12 * 12) / 30 * 1e6, abs=40_000)
        assert places == [frames[0] % 12, *(count - 1 for _ in frames[1:])]


def test_samples_are_added_where_frames_are_reordered_and_their_bytes_are_there():
    """Older decoders of H.264 hold back the last frames of a stream of fewer than 10."""
    counts = []
    for everything in (False, True):
        small, _ = made("h264, open groups", [30], everything=everything)
        with av.open(io.BytesIO(small)) as container:
            counts.append(container.streams.video[0].frames)
    assert counts[0] < 10 <= counts[1] < 16


def test_small_file_of_a_rotated_track_keeps_the_rotation():
    small, _ = made("rotated", [3])
    assert read_small_file(memoryview(small)).setup.rotation == 90
