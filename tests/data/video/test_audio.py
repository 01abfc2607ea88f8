"""Sound decoded from ranges is equal to that of the whole file, PCM frame by PCM frame, in every kind of file."""

import numpy as np
import pytest

from penstock.data.video.audio import Sound, decode_audio, find_packets, find_pieces
from penstock.data.video.frames import join_pieces
from penstock.errors import Damaged, MissingExtra, Unsupported
from tests.data.video.files import SOUNDS, record, sound, whole_audio
from tests.data.video.moov import file, full, pcm_file, sound_entry, table, walked, wave
from tests.data.video.test_packets import held_of


def decoded(data, found, begin, stop):
    pieces = join_pieces(find_pieces(found, np.array([begin]), np.array([stop])))
    return decode_audio(Sound(found, begin, stop), held_of(data, pieces))


@pytest.mark.parametrize("name", SOUNDS)
def test_samples_are_those_of_the_whole_file(name):
    data, expected = sound(name), whole_audio(sound(name))
    found, asked = walked(data, audio=True)
    assert len(asked) == 1 + (len(data) > 64 << 10 and data.find(b"moov") > 64 << 10)
    # Without an edit list, the priming of the encoder is heard.
    rate, hidden = found.scale, 1024 if name == "aac without an edit list" else 0
    assert found.frames == round(1.3 * rate) + hidden
    assert found.begin == 0
    draw, near = np.random.default_rng(3), 1e-5 if "opus" in name else 0
    starts = draw.integers(0, found.frames - 1, 20)
    for begin in [0, found.frames - 1, 1, *starts.tolist()]:
        stop = min(begin + int(draw.integers(1, 9000)), found.frames)
        samples = decoded(data, found, begin, stop)
        assert samples.dtype == np.float32
        assert samples.shape == (len(expected), stop - begin)
        assert np.abs(samples - expected[:, begin:stop]).max() <= near, f"{begin} to {stop}"
    everything = decoded(data, found, -500, found.frames + 900)
    assert np.array_equal(everything[:, 500:-900], expected[:, : found.frames])
    assert not everything[:, :500].any()
    assert not everything[:, -900:].any()


@pytest.mark.parametrize("bits", [8, 16, 24, 32])
def test_values_are_fractions_of_the_range(bits):
    size, edge = bits // 8, 1 << (bits - 1)
    values = [-edge, -1, 0, 1, edge - 1]
    raw = b"".join(((each + (edge if bits == 8 else 0)) % (1 << bits)).to_bytes(size, "little") for each in values)
    data = wave(raw, channels=1, bits=bits)
    found = walked(data, audio=True)[0]
    assert decoded(data, found, 0, 5).tolist() == [np.array([each / edge for each in values], np.float32).tolist()]


def test_track_that_begins_later_is_silent_before():
    data = pcm_file(2000, edits=[(100, -1, 1 << 16), (50, 300, 1 << 16)])
    found = walked(data, audio=True)[0]
    # 100 ms of silence, then 50 ms from PCM frame 300 on, at 15,360 Hz.
    assert (found.begin, found.frames, found.first) == (1536, 768, 1236)
    samples = decoded(data, found, 0, 3000)
    at = data.index(b"mdat") + 4
    expected = np.frombuffer(data, "<i2", 4000, at).reshape(-1, 2).T[:, 300:1068] / np.float32(32768)
    assert np.array_equal(samples[:, 1536:2304], expected)
    assert not samples[:, :1536].any()
    assert not samples[:, 2304:].any()


def test_bytes_between_packets_that_are_far_apart_are_not_read():
    data = file(
        [20_000] * 3,
        per_chunk=(1, 1, 1),
        gap=100_000,
        handler="soun",
        keys=None,
        stsd=sound_entry(),
        stts=table("stts", [(15_000, 1)]),
        stsz=full("stsz", 4, 15_000),
        stsc=table("stsc", [(1, 5000, 1)]),
    )
    found = walked(data, audio=True)[0]
    for begin, stop, counts in ((0, 15_000, [20_000] * 3), (6000, 6100, [16_384]), (9000, 10_100, [20_000, 16_384])):
        pieces = join_pieces(find_pieces(found, np.array([begin]), np.array([stop])))
        assert [end - start for start, end in pieces] == counts
        at = [data.index(b"mdat") + 4 + number * 120_000 for number in range(3)]
        expected = b"".join(data[start : start + 20_000] for start in at)
        wanted = np.frombuffer(expected, "<i2").reshape(-1, 2)[begin:stop].T / np.float32(32768)
        assert np.array_equal(decoded(data, found, begin, stop), wanted)


def test_gap_between_packets_is_silent():
    data = sound("flac")
    durations = table("stts", [(13, 4608), (1, 2496)])
    found = walked(data.replace(durations, table("stts", [(1, 4608 + 480), (13, 4608)])[: len(durations)]), audio=True)
    samples = decoded(data, found[0], 0, 12_000)
    expected = whole_audio(data)
    assert np.array_equal(samples[:, :4608], expected[:, :4608])
    assert not samples[:, 4608 : 4608 + 480].any()
    assert np.array_equal(samples[:, 5088:9000], expected[:, 4608:8520])


def test_packets_that_cannot_be_decoded_are_damaged():
    data = bytearray(sound("aac, mp4"))
    found = walked(bytes(data), audio=True)[0]
    start, stop = found.pieces(*find_packets(found, np.array([9000]), np.array([20_000])))[0]
    data[start + 2000 : stop] = b"\xff" * (stop - start - 2000)
    with pytest.raises(Damaged, match=r"cannot decode the audio from 0\.1\d\d s|of \d+ packets"):
        decoded(bytes(data), found, 9000, 20_000)


def test_decoder_that_contradicts_the_description_is_refused():
    data = record("aac", "mp4", "fltp", rate=48_000, seconds=0.2)
    found = walked(data, audio=True)[0]._replace(scale=24_000)
    with pytest.raises(Unsupported, match="2 channels at 48000 Hz, and the file states 2 at 24000 Hz"):
        decoded(data, found, 0, 5000)


def test_without_pyav_pcm_is_decoded_and_aac_names_the_extra(monkeypatch):
    data = sound("aac, mp4")
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    pcm = pcm_file(stsd=sound_entry("twos"))
    assert decoded(pcm, walked(pcm, audio=True)[0], 0, 10).shape == (2, 10)
    with pytest.raises(MissingExtra, match=r"decoding audio needs PyAV: pip install 'penstock\[video\]'"):
        decoded(data, walked(data, audio=True)[0], 0, 10)
