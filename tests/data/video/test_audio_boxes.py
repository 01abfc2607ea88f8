"""Audio tracks and WAV files: true tables are found; lying ones are refused by name, in bounded time and memory."""

import io
import itertools
import struct

import av
import numpy as np
import pytest

from penstock.data.shards.format import run_walk
from penstock.data.video.audio import find_packets
from penstock.data.video.frames import NO_AUDIO, VideoFormat
from penstock.errors import Damaged, Unsupported
from tests.data.video.files import kind, record, sound
from tests.data.video.moov import (
    box,
    check_damaged,
    esds,
    file,
    full,
    pcm_file,
    refused,
    sound_entry,
    table,
    walked,
    wave,
)

OPUS = box("dOps", b"\0\2" + bytes(9))
LC, HE = b"\x11\x90", b"\x2b\x11\x88\x00"


def with_entry(codec, *inner, **options):
    return lambda: pcm_file(stsd=sound_entry(codec, *inner, **options))


def aac(setup=LC, object_type=0x40, **options):
    return lambda: pcm_file(stsd=sound_entry("mp4a", esds(setup, object_type)), **options)


REFUSED = {
    "no audio": (lambda: kind("vp9"), Unsupported, "no audio track"),
    "flac": (lambda: b"fLaC" + bytes(99), Unsupported, r"is FLAC, .* ffmpeg -i IN\.flac -c copy OUT\.mp4"),
    "mp3": (lambda: b"\xff\xfb\x90\0" + bytes(99), Unsupported, r"is MP3, .* ps\.MapDataset"),
    "ogg": (lambda: b"OggS" + bytes(99), Unsupported, "is Ogg"),
    "empty": (lambda: b"", Damaged, "0 bytes begins with"),
    "mp3 in mp4": (aac(object_type=0x6B), Unsupported, "object type 0x6b is not supported, only AAC"),
    "he-aac": (aac(HE), Unsupported, "AAC of object type 5 .*HE-AAC.*ffmpeg"),
    "he-aac in an extension": (aac(b"\x13\x08\x56\xe5\xa0"), Unsupported, "AAC of object type 5 .*HE-AAC"),
    "aac main": (aac(b"\x09\x90"), Unsupported, "AAC of object type 1 "),
    "aac of 24 channels": (aac(b"\x11\xe8"), Unsupported, "channel configuration 13"),
    "aac without a setup": (aac(b"\x11"), Damaged, "AAC decoder is cut short"),
    "aac at an unknown rate": (aac(b"\x16\x90"), IndexError, "."),
    "aac without esds": (with_entry("mp4a"), Damaged, "no box 'esds'"),
    "unknown codec": (with_entry("ac-3"), Unsupported, "codec 'ac-3' of 16 bits is not supported, only AAC"),
    "pcm of 12 bits": (with_entry("sowt", bits=40), Unsupported, "codec 'sowt' of 40 bits"),
    "pcm without a rate": (with_entry("raw ", bits=0), Unsupported, "codec 'raw ' of 0 bits"),
    "encrypted": (with_entry("enca"), Unsupported, "audio track is encrypted"),
    "protected": (with_entry("sowt", box("sinf", b"")), Unsupported, "audio track is encrypted"),
    "version 3": (with_entry("sowt", version=3), Unsupported, "sound description of version 3"),
    "lpcm, not packed": (
        with_entry("lpcm", version=2, more=struct.pack(">Id7I", 72, 8e3, 2, 0x7F000000, 20, 12, 8, 1, 0)[:36]),
        *(Unsupported, "PCM frames of 8 bytes for 2 of 20 bits"),
    ),
    "rate not a number": (
        with_entry("lpcm", version=2, more=struct.pack(">Id6I", 72, float("nan"), 2, 0, 16, 12, 4, 1)),
        *(ValueError, "NaN"),
    ),
    "no channels": (with_entry("sowt", channels=0), Damaged, "has 0 channels"),
    "65,535 channels": (with_entry("sowt", channels=65_535), Damaged, "has 65535 channels, and 1 to 64"),
    "other rate": (with_entry("sowt", rate=44_100), Unsupported, "44100 samples per second, and .* in 1/15360 s"),
    "scale of 0": (lambda: pcm_file(mdhd=full("mdhd", 0, 0, 0, 0, 0)), Damaged, "time scale of the audio track is 0"),
    "scale of a billion": (lambda: pcm_file(mdhd=full("mdhd", 0, 0, 10**9, 0, 0)), Damaged, "1000000000 samples"),
    "2^32 frames": (lambda: pcm_file(stsz=full("stsz", 4, (1 << 32) - 1)), Damaged, "claims 4294967295 frames of 4"),
    "no frames": (lambda: pcm_file(stsz=full("stsz", 4, 0)), Unsupported, "no audio track"),
    "no packets": (lambda: pcm_file(stsz=full("stsz", 0, 0), stsd=b""), Unsupported, "no audio track"),
    "sizes one by one": (lambda: pcm_file(stsz=full("stsz", 0, 2, 4, 4)), Unsupported, "table of sizes of PCM frames"),
    "other durations": (lambda: pcm_file(stts=table("stts", [(9000, 2)])), Unsupported, "not all one tick apart"),
    "fewer durations": (lambda: pcm_file(stts=table("stts", [(9, 1)])), Unsupported, "not all one tick apart"),
    "other chunks": (
        lambda: pcm_file(stsc=table("stsc", [(1, 8000, 1)])),
        *(Damaged, "chunks of the audio track have 8000 frames, and stsz has 9000"),
    ),
    "chunk beyond": (lambda: pcm_file(stco=table("stco", [(5000,)])), Damaged, "ends at byte 41000, and the file at"),
    "overlapping": (
        lambda: pcm_file(stco=table("stco", [(900,), (901,)]), stsc=table("stsc", [(1, 4500, 1)])),
        *(Unsupported, "audio track overlap"),
    ),
    "times that are not samples": (
        lambda: patched_scale(sound("flac"), 44_100),
        *(Unsupported, "in 1/44100 s, are not whole samples of 1/48000 s"),
    ),
    "endless durations": (
        lambda: file([1] * 300, steps=[(1 << 32) - 1] * 300, handler="soun", stsd=sound_entry("Opus", OPUS)),
        *(Damaged, "times beyond all reason"),
    ),
    "times that go back": (
        lambda: turned_back(record("aac", "mp4", "fltp", flags={"movflags": "empty_moov", "frag_duration": "400000"})),
        *(Damaged, "go back in time"),
    ),
    "two edits": (lambda: pcm_file(edits=[(9, 0, 1 << 16), (9, 60, 1 << 16)]), Unsupported, "edit list of 2 parts"),
    "wav, no channels": (lambda: wave(channels=0), Damaged, "has 0 channels"),
    "wav, rate of 0": (lambda: wave(rate=0), Damaged, "has 0 samples per second"),
    "wav, bytes of 0": (lambda: wave(align=0), Damaged, "0 bytes for 2 samples of 16 bits"),
    "wav, bytes of 3": (lambda: wave(align=3), Damaged, "3 bytes for 2 samples of 16 bits"),
    "wav, mu-law": (lambda: wave(tag=7, bits=8), Unsupported, "format 0x0007 and 8 bits, not PCM: ffmpeg"),
    "wav, 12 bits": (lambda: wave(bits=12), Unsupported, "format 0x0001 and 12 bits"),
    "wav, data beyond": (lambda: wave(size=9000), Damaged, "has 9000 bytes, and the file ends at 8044: cut short"),
    "wav, cut in the middle": (lambda: wave()[:4000], Damaged, "has 8000 bytes, and the file ends at 4000"),
    "wav, cut before data": (lambda: wave()[:36], Damaged, "found no data chunk in the WAV file of 36 bytes"),
    "wav, no data": (lambda: wave(b""), Unsupported, "WAV file has no samples"),
    "wav, data first": (
        lambda: wave(before=struct.pack("<4sI", b"data", 4) + bytes(4)),
        *(Damaged, "no 'fmt ' chunk before its data at byte 12"),
    ),
    "wav, endless chunks": (
        lambda: wave(before=b"".join(struct.pack("<4sI", b"JUNK", 1 << 18) + bytes(1 << 18) for _ in range(20))),
        *(Damaged, "found no data chunk"),
    ),
    "wav, chunk beyond": (lambda: wave(before=struct.pack("<4sI", b"LIST", 1 << 30)), Damaged, "found no data chunk"),
    "wav, format of 4 bytes": (
        lambda: b"RIFF\x40\0\0\0WAVE" + struct.pack("<4sI4s", b"fmt ", 4, b"\1\0\1\0") + b"data" + bytes(60),
        *(struct.error, "."),
    ),
}


def turned_back(data):
    """Return a fragmented file whose third fragment begins at 0."""
    at = data.index(b"tfdt", data.index(b"tfdt", data.index(b"tfdt") + 4) + 4)
    return data[: at + 8] + bytes(8) + data[at + 16 :]


def patched_scale(data, scale):
    at = data.index(b"mdhd") + 4 + 12
    return data[:at] + struct.pack(">I", scale) + data[at + 4 :]


@pytest.mark.parametrize("name", REFUSED)
def test_sound_that_cannot_be_read_is_refused_by_name(name):
    make, error, says = REFUSED[name]
    data = make()
    refused(lambda: walked(data, audio=True), error, says)


@pytest.mark.parametrize("name", ["aac, mp4", "opus", "alac, mov, 24 bits, 96 kHz", "flac"])
def test_packets_are_those_of_the_container(name):
    data = sound(name)
    found = walked(data, audio=True)[0]
    with av.open(io.BytesIO(data)) as container:
        packets = [each for each in container.demux(audio=0) if each.size]
    assert found.sizes.tolist() == [each.size for each in packets]
    places, _ = found.places_of(0, len(packets))
    assert places.tolist() == [each.pos for each in packets]
    assert [found.first + at * found.step for at in range(len(packets))] == [each.pts for each in packets]


def test_frames_of_one_size_take_a_packet_for_4096_of_them():
    found, asked = walked(pcm_file(1_000_000), audio=True)
    assert len(asked) == 2
    assert (len(found.sizes), found.frames, found.step) == (245, 1_000_000, 4096)
    assert found.sizes.tolist() == [4096 * 4] * 244 + [576 * 4]
    # QuickTime states 1 byte for each.
    assert walked(pcm_file(stsz=full("stsz", 1, 9000)), audio=True)[0].sizes.sum() == 36_000


QT2 = struct.pack(">Id6I", 72, 96_000.0, 2, 0x7F000000, 24, 14, 6, 1)


@pytest.mark.parametrize(
    ("entry", "expected", "rate"),
    [
        (sound_entry("in24", channels=1, version=1, more=bytes(16)), (">i3", 1), 15_360),
        (
            sound_entry("in24", box("wave", box("enda", b"\0\1")), channels=1, version=1, more=bytes(16)),
            ("<i3", 1),
            15_360,
        ),
        (sound_entry("lpcm", version=2, channels=3, more=QT2), (">i3", 2), 96_000),
        (sound_entry("twos", bits=8, channels=1), ("|i1", 1), 15_360),
        (sound_entry("raw ", bits=8, channels=1), ("|u1", 1), 15_360),
        (sound_entry("ipcm", box("pcmC", b"\0\0\0\0\1\x20"), channels=1), ("<i4", 1), 15_360),
        (sound_entry("sowt", rate=30_464), ("<i2", 2), 96_000),
        (sound_entry("sowt", rate=48_000), ("<i2", 2), 96_000),
    ],
)
def test_sound_descriptions_name_the_samples(entry, expected, rate):
    frame_bytes = int(expected[0][2]) * expected[1]
    data = pcm_file(5000, frame_bytes, stsd=entry, mdhd=full("mdhd", 0, 0, rate, 0, 0))
    found = walked(data, audio=True)[0]
    assert (found.setup.codec, found.setup.channels) == expected
    assert (found.scale, found.frames) == (rate, 5000)


def test_times_of_a_clock_are_those_of_packets_without_gaps():
    data = sound("aac, mp4")
    plain = table("stts", [(61, 1024), (1, 960)])
    assert plain in data

    def stepped(*rows):
        # As long as before: the rest of the box is free.
        changed = table("stts", rows)
        grown = len(changed) - len(plain)
        at = data.index(plain)
        moved = bytearray(data[:at] + changed + data[at + len(plain) :])
        for name in ("moov", "trak", "mdia", "minf", "stbl"):
            place = moved.index(name.encode()) - 4
            moved[place : place + 4] = struct.pack(">I", struct.unpack_from(">I", moved, place)[0] + grown)
        return walked(bytes(moved), audio=True)[0]

    jittered = stepped(*[(1, 1024 + (-1) ** at) for at in range(61)], (1, 960))
    assert (jittered.first, jittered.step) == (-1024, 1024)
    # A gap of a tenth of a second stays.
    gap = stepped((30, 1024), (1, 1024 + 4800), (30, 1024), (1, 960))
    assert gap.step == 0
    assert np.diff(gap.times).tolist() == [1024] * 30 + [5824] + [1024] * 30


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 2000),
        ({"before": struct.pack("<4sI", b"JUNK", 27) + bytes(28)}, 2000),
        ({"size": 0xFFFFFFFF}, 2000),
        ({"size": 0, "whole": 0}, 2000),
        ({"size": 0, "whole": 0xFFFFFFFF}, 2000),
        ({"size": 403}, 100),
        ({"bits": 24, "channels": 1}, 2666),
        *(
            (
                {
                    "magic": magic,
                    "size": 0xFFFFFFFF,
                    "whole": 0xFFFFFFFF,
                    "before": struct.pack("<4sI3QI", b"ds64", 28, 0, 4000, 0, 0),
                },
                1000,
            )
            for magic in (b"RF64", b"BW64")
        ),
    ],
)
def test_wav_files_have_the_samples_of_their_data(options, count):
    data = wave(bytes(8000), **options)
    found, asked = walked(data, audio=True)
    assert (found.frames, found.scale, len(asked)) == (count, 8000, 1)
    assert found.place_of(0) == data.index(b"data") + 8


def test_extensible_wav_names_its_format_by_a_guid():
    guid = bytes.fromhex("0300000000001000800000aa00389b71")
    head = struct.pack("<2H2I2H3HI", 0xFFFE, 2, 8000, 64_000, 8, 32, 22, 32, 3, 0)[:24] + guid
    data = b"WAVE" + struct.pack("<4sI", b"fmt ", 40) + head + struct.pack("<4sI", b"data", 800) + bytes(800)
    found = walked(b"RIFF" + struct.pack("<I", len(data)) + data, audio=True)[0]
    assert (found.setup.codec, found.frames) == ("<f4", 100)


def test_chunk_before_the_data_that_is_larger_than_the_first_read_takes_one_request_more():
    for length in (100_000, (64 << 10) - 12 - 8 - 4, (64 << 10) - 12 - 8 - 20):
        data = wave(before=struct.pack("<4sI", b"LIST", length) + bytes(length))
        found, asked = walked(data, audio=True)
        assert (found.frames, len(asked)) == (2000, 2)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(asked))


def test_video_with_sound_has_both_tables_of_one_read():
    for name, has in (("sound after", True), ("vp9", False)):
        data = memoryview(kind(name))
        video, audio = run_walk(VideoFormat(audio=True).walk(len(data)), data).schema
        alone = run_walk(VideoFormat().walk(len(data)), data).schema
        assert all(map(np.array_equal, video[1:], alone[1:]))
        assert (audio is NO_AUDIO) == (not has)
        assert audio.scale == (44_100 if has else 0)


@pytest.mark.parametrize("name", ["aac, mp4", "opus", "alac, mp4", "flac", "pcm_s24le, mov", "pcm_s16le, wav"])
def test_damaged_sound_gives_an_error_or_a_table_within_the_file(name, seed):
    data = sound(name)
    places = range(44) if "wav" in name else range(data.index(b"moov") - 4, len(data) - 4)

    def check(changed):
        found = walked(changed, audio=True)[0]
        for begin in range(0, found.frames, max(found.frames // 9, 1)):
            pieces = found.pieces(*find_packets(found, np.array([begin]), np.array([begin + 99])))
            assert all(0 <= start < stop <= len(changed) for start, stop in pieces)

    check_damaged(data, places, f"{seed} {name}", check)
