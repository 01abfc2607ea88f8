"""MP4 and MOV files of many kinds, written by FFmpeg through PyAV; each frame has its number drawn into it."""

from __future__ import annotations

import io
import os
import struct
import tempfile
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any

import av
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

# The encoder of AV1 prints a page for each file.
os.environ.setdefault("SVT_LOG", "1")

WIDTH, HEIGHT, BITS = 96, 64, 8


def picture(number: int, seed: int = 0) -> np.ndarray:
    """Return a picture of coarse noise that moves, with the bits of its number as squares above."""
    rng = np.random.default_rng(seed)
    scene = rng.integers(0, 255, (HEIGHT // 8 + 8, WIDTH // 8 + 16, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    at = 40 + int(36 * np.sin(number / 9))
    found = scene[at // 2 : at // 2 + HEIGHT, at : at + WIDTH].copy()
    side = WIDTH // BITS
    for bit in range(BITS):
        found[:side, bit * side : (bit + 1) * side] = 255 if number >> bit & 1 else 0
    return found


def number_in(pixels: np.ndarray) -> int:
    """Return the number that is drawn into a picture of shape (height, width, 3)."""
    side = WIDTH // BITS
    return sum(
        int(pixels[4 : side - 4, bit * side + 4 : (bit + 1) * side - 4].mean() > 127) << bit for bit in range(BITS)
    )


@contextmanager
def written(form: str, options: dict[str, str]) -> Iterator[tuple[Any, list[bytes]]]:
    """Yield a container to write to, and a list that has the bytes of its file afterwards."""
    found: list[bytes] = []
    # A file with a name: moov is moved to the front by a second reader.
    with tempfile.NamedTemporaryFile(suffix=f".{form}") as file:
        with av.open(file.name, "w", format=form, options=options) as out:
            yield out, found
        found.append(file.read())


def encode(  # noqa: PLR0913
    codec: str = "libx264",
    *,
    count: int = 60,
    g: int = 12,
    pix: str = "yuv420p",
    form: str = "mp4",
    flags: str = "",
    rate: Fraction | int = 30,
    times: list[int] | None = None,
    options: dict[str, str] | None = None,
    seed: int = 0,
) -> bytes:
    """Return a file of ``count`` frames with a key frame every ``g``; ``times`` are ticks of 1/600 s."""
    with written(form, {"movflags": flags} if flags else {}) as (out, found):
        stream: Any = out.add_stream(codec, rate, options={"g": str(g), **(options or {})})
        stream.pix_fmt, stream.width, stream.height = pix, WIDTH, HEIGHT
        stream.codec_context.thread_count = 1
        if times is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 600)
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(picture(number, seed), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[number], Fraction(1, 600)
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return found[0]


def remux(
    *parts: bytes,
    form: str = "mp4",
    shift_s: float = 0,
    from_s: float = 0,
    until_s: float = 1e9,
    options: dict[str, str] | None = None,
    sound: str = "",
) -> bytes:
    """Return files one behind the other, their packets copied; with ``sound`` "before" or "after" the video track."""
    with written(form, options or {}) as (out, found):
        tone = _tone(out) if sound == "before" else None
        with av.open(io.BytesIO(parts[0])) as first:
            stream = out.add_stream_from_template(first.streams.video[0])
        tone = _tone(out) if sound == "after" else tone
        packets, at = [], 0.0
        for part in parts:
            with av.open(io.BytesIO(part)) as given:
                [source] = given.streams.video
                keys = [each.pts for each in given.demux(source) if each.is_keyframe and each.pts is not None]
                base = source.time_base
                begin = max(pts for pts in keys if pts * base <= from_s)
                given.seek(begin, stream=source)
                for packet in given.demux(source):
                    if packet.dts is None or packet.pts * base >= until_s or packet.pts < begin:
                        continue
                    move = round((at + shift_s - from_s) / base)
                    packet.pts, packet.dts, packet.stream = packet.pts + move, packet.dts + move, stream
                    packets.append(packet)
                at += float(source.duration * base)
        # Interleaved by a second, as FFmpeg does.
        last = 0.0
        for packet in packets:
            if tone is not None and packet.dts * packet.time_base > last:
                _play(out, tone, last, last + 0.5)
                last += 0.5
            out.mux(packet)
    return found[0]


def _tone(out: Any) -> Any:
    return out.add_stream("aac", 44_100, layout="mono")


def _play(out: Any, stream: Any, start_s: float, stop_s: float) -> None:
    at = np.arange(int(start_s * 44_100), int(stop_s * 44_100))
    frame = av.AudioFrame.from_ndarray(np.sin(at / 9).astype(np.float32)[None], format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = 44_100, int(at[0]), Fraction(1, 44_100)
    out.mux(stream.encode(frame))


def samples_of(count: int, rate: int, channels: int = 1) -> np.ndarray:
    """Return a tone with noise for each channel: float32, (channels, count)."""
    noise = np.random.default_rng(5).standard_normal((channels, count)) / 12
    tone = np.sin(np.arange(count) * 2 * np.pi * 440 / rate) / 3
    return (tone + noise).clip(-0.9, 0.9).astype(np.float32)


def record(  # noqa: PLR0913
    codec: str,
    form: str,
    sample_format: str,
    *,
    rate: int = 48_000,
    layout: str = "stereo",
    seconds: float = 1.3,
    options: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> bytes:
    """Return a file with one audio track."""
    with written(form, flags or {}) as (out, found):
        # Noise substitution is random in each decoder.
        stream: Any = out.add_stream(codec, rate, layout=layout, options={"aac_pns": "0"} if codec == "aac" else {})
        stream.codec_context.options = {**stream.codec_context.options, **(options or {})}
        stream.codec_context.format = sample_format
        wide = samples_of(round(rate * seconds), rate, stream.codec_context.layout.nb_channels)
        resampler: Any = None
        for at in range(0, wide.shape[1], 5000):
            part = np.ascontiguousarray(wide[:, at : at + 5000])
            frame = av.AudioFrame.from_ndarray(part, format="fltp", layout=layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, at, Fraction(1, rate)
            # Opened by the first frame: only then the size of packets is known.
            stream.codec_context.open(strict=False)
            resampler = resampler or av.AudioResampler(sample_format, layout, rate, stream.codec_context.frame_size)
            for each in resampler.resample(frame):
                out.mux(stream.encode(each))
        for each in resampler.resample(None):
            out.mux(stream.encode(each))
        out.mux(stream.encode())
    return found[0]


def whole_audio(data: bytes) -> np.ndarray:
    """Return the samples of the first audio track, from time 0, as PyAV decodes all of it: float32, (channels, n)."""
    with av.open(io.BytesIO(data)) as container:
        [stream, *_] = container.streams.audio
        parts = [(round(each.pts * stream.time_base * stream.rate), each) for each in container.decode(stream)]
    found = np.zeros((parts[0][1].layout.nb_channels, max(at + each.samples for at, each in parts)), np.float32)
    for at, each in parts:
        values = each.to_ndarray()
        values = values if each.format.is_planar else values.reshape(-1, len(found)).T
        scale = {"u": 128.0, "i": float(1 << (8 * values.itemsize - 1)), "f": 1.0}[values.dtype.kind]
        found[:, at : at + each.samples] = (values - (128.0 if values.dtype.kind == "u" else 0)) / scale
    return found


def film(  # noqa: PLR0913
    codec: str = "aac",
    *,
    seconds: float = 4.0,
    delay_s: float = 0.0,
    sound_s: float | None = None,
    rate: int = 44_100,
    fps: Fraction | int = 25,
    times: list[int] | None = None,
    form: str = "mp4",
    flags: str = "faststart",
    sample_format: str = "fltp",
) -> bytes:
    """Return a file of pictures with sound, interleaved; the sound begins after ``delay_s`` and lasts ``sound_s``."""
    with written(form, {"movflags": flags} if flags else {}) as (out, found):
        stream: Any = out.add_stream("libx264", fps, options={"g": "12", "bf": "2"})
        stream.pix_fmt, stream.width, stream.height = "yuv420p", WIDTH, HEIGHT
        stream.codec_context.thread_count = 1
        if times is not None:
            stream.time_base = stream.codec_context.time_base = Fraction(1, 600)
        options = {"aac_pns": "0"} if codec == "aac" else {}
        tone: Any = out.add_stream(codec, rate, layout="stereo", options=options)
        tone.codec_context.format = sample_format
        wide = samples_of(round((seconds if sound_s is None else sound_s) * rate), rate, 2)
        packets: list[tuple[float, int, Any]] = []
        for number in range(round(seconds * fps)):
            frame = av.VideoFrame.from_ndarray(picture(number % 256), format="rgb24")
            if times is not None:
                frame.pts, frame.time_base = times[number], Fraction(1, 600)
            packets += [(float(each.dts * each.time_base), 0, each) for each in stream.encode(frame)]
        packets += [(float(each.dts * each.time_base), 0, each) for each in stream.encode()]
        tone.codec_context.open(strict=False)
        size = tone.codec_context.frame_size or 1024
        resampler = av.AudioResampler(sample_format, "stereo", rate, size)
        for at in range(0, wide.shape[1], 5000):
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(wide[:, at : at + 5000]), format="fltp", layout="stereo"
            )
            frame.sample_rate, frame.time_base = rate, Fraction(1, rate)
            frame.pts = at + round(delay_s * rate)
            for part in resampler.resample(frame):
                packets += [(float(each.dts * each.time_base), 1, each) for each in tone.encode(part)]
        for part in [*resampler.resample(None), None]:
            packets += [(float(each.dts * each.time_base), 1, each) for each in tone.encode(part)]
        for _, _, packet in sorted(packets, key=lambda each: each[:2]):
            out.mux(packet)
    return found[0]


def together(*parts: bytes) -> bytes:
    """Return a file with the video tracks of several files."""
    with written("mp4", {"movflags": "faststart"}) as (out, found):
        given = [av.open(io.BytesIO(part)) for part in parts]
        streams = [out.add_stream_from_template(each.streams.video[0]) for each in given]
        packets = []
        for each, stream in zip(given, streams, strict=True):
            for packet in each.demux(video=0):
                if packet.dts is not None:
                    at = float(packet.dts * packet.time_base)
                    packet.stream = stream
                    packets.append((at, packet))
        for _, packet in sorted(packets, key=lambda pair: pair[0]):
            out.mux(packet)
        for each in given:
            each.close()
    return found[0]


def turned(data: bytes, matrix: tuple[int, int, int, int] = (0, 1 << 16, -(1 << 16), 0)) -> bytes:
    """Return a file with a rotation in the header of its only track."""
    at = data.index(b"tkhd") + 4 + 40
    a, b, c, d = matrix
    return data[:at] + struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30) + data[at + 36 :]


FAST = "faststart"
OPEN_H264 = {"bf": "3", "x264-params": "open-gop=1:keyint=15:min-keyint=15:bframes=3:scenecut=0"}
OPEN_HEVC = {
    "x265-params": "open-gop=1:bframes=4:keyint=20:min-keyint=20:scenecut=0:log-level=none:pools=none:frame-threads=1"
}
CLOSED_HEVC = {"x265-params": "log-level=none:pools=none:frame-threads=1:keyint=12:min-keyint=12"}
LOSSLESS = {"x265-params": "lossless=1:log-level=none:pools=none:frame-threads=1:keyint=2:min-keyint=2"}
VARIED = [600 * number // 30 + (number * number) % 11 for number in range(60)]
SVT = {"crf": "30", "preset": "12", "svtav1-params": "lp=1"}
KINDS = {
    "h264, moov at the end": encode,
    "h264, moov in front": lambda: encode(flags=FAST),
    "h264, g=2 without B-frames": lambda: encode(g=2, flags=FAST, options={"bf": "0"}),
    "h264, open groups": lambda: encode(g=15, flags=FAST, options=OPEN_H264),
    "h264, one group": lambda: encode(g=250, flags=FAST),
    "hevc": lambda: encode("libx265", flags=FAST, options=CLOSED_HEVC),
    "hevc, open groups": lambda: encode("libx265", g=20, flags=FAST, options=OPEN_HEVC),
    "av1, g=2": lambda: encode("libsvtav1", g=2, flags=FAST, options=SVT),
    "av1, g=30": lambda: encode("libsvtav1", g=30, flags=FAST, options=SVT),
    "vp9": lambda: encode("libvpx-vp9", flags=FAST, options={"cpu-used": "8", "deadline": "realtime", "b:v": "1M"}),
    "mpeg4 with B-frames": lambda: encode("mpeg4", flags=FAST, options={"bf": "2", "b:v": "1M"}),
    "prores": lambda: encode("prores_ks", g=1, pix="yuv422p10le", form="mov"),
    "hevc, 12 bits, lossless": lambda: encode("libx265", g=2, pix="gray12le", flags=FAST, options=LOSSLESS),
    "trimmed by an edit list": lambda: remux(
        kind("h264, moov in front"), from_s=0.55, until_s=1.7, options={"avoid_negative_ts": "disabled"}
    ),
    "sound after": lambda: remux(kind("h264, moov in front"), sound="after", options={"movflags": FAST}),
    "sound before": lambda: remux(kind("h264, moov in front"), sound="before"),
    "video delayed": lambda: remux(kind("h264, moov in front"), shift_s=0.4, sound="after"),
    "variable rate": lambda: encode(flags=FAST, times=VARIED),
    "rotated": lambda: turned(kind("h264, moov at the end")),
    "ntsc": lambda: encode(g=15, flags=FAST, rate=Fraction(30_000, 1001)),
    "two video tracks": lambda: together(kind("h264, moov in front"), kind("h264, g=2 without B-frames")),
    "negative composition offsets": lambda: remux(
        kind("h264, open groups"), options={"movflags": "negative_cts_offsets+faststart"}
    ),
    "fragments": lambda: encode(flags="frag_keyframe+empty_moov+default_base_moof"),
    "fragments behind frames of moov": lambda: encode(flags="frag_keyframe"),
    "fragment of each frame": lambda: encode(flags="frag_every_frame+empty_moov"),
    "fragments of DASH, open groups": lambda: encode(
        g=15, flags="dash+frag_keyframe+delay_moov+global_sidx", options=OPEN_H264
    ),
    "fragments of sound and video": lambda: remux(
        kind("h264, moov in front"), sound="before", options={"movflags": "frag_keyframe+delay_moov"}
    ),
    "fragments, variable rate": lambda: encode(flags="frag_keyframe+empty_moov", times=VARIED),
    "concatenated": lambda: remux(
        kind("h264, moov at the end"), kind("h264, moov in front"), options={"movflags": FAST}
    ),
}


FILMS = {
    "interleaved": film,
    "delayed, and ends early": lambda: film(delay_s=0.5, sound_s=2),
    "ntsc, flac": lambda: film("flac", rate=48_000, sample_format="s16", fps=Fraction(30_000, 1001)),
    "mov, pcm": lambda: film("pcm_s16le", form="mov", sample_format="s16", flags=""),
    "opus": lambda: film("libopus", rate=48_000, sample_format="flt"),
    "variable rate, alac": lambda: film("alac", seconds=60 / 25, times=VARIED, rate=48_000, sample_format="s16p"),
}
SOUNDS = {
    "aac, mp4": lambda: record("aac", "mp4", "fltp"),
    "aac, mov": lambda: record("aac", "mov", "fltp"),
    "aac, ipod, mono, 16 kHz": lambda: record("aac", "ipod", "fltp", rate=16_000, layout="mono"),
    "aac, 5.1, 96 kHz, moov in front": lambda: record(
        "aac", "mp4", "fltp", rate=96_000, layout="5.1", flags={"movflags": FAST}
    ),
    "aac without an edit list": lambda: record("aac", "mp4", "fltp", flags={"use_editlist": "0"}),
    "opus": lambda: record("libopus", "mp4", "flt"),
    "opus, 5.1": lambda: record("libopus", "mp4", "flt", layout="5.1"),
    "alac, mp4": lambda: record("alac", "mp4", "s16p"),
    "alac, mov, 24 bits, 96 kHz": lambda: record("alac", "mov", "s32p", rate=96_000),
    "flac": lambda: record("flac", "mp4", "s16"),
    "flac, 24 bits, 5.1": lambda: record("flac", "mp4", "s32", layout="5.1"),
    **{
        f"{codec}, {form}": lambda codec=codec, form=form, sample=sample: record(codec, form, sample)
        for codec, form, sample in (
            *(("pcm_s16le", "mov", "s16"), ("pcm_s16le", "mp4", "s16"), ("pcm_s16be", "mov", "s16")),
            *(("pcm_s16be", "mp4", "s16"), ("pcm_s24le", "mov", "s32"), ("pcm_s24be", "mov", "s32")),
            *(("pcm_s24le", "mp4", "s32"), ("pcm_s32be", "mov", "s32"), ("pcm_f32le", "mov", "flt")),
            *(("pcm_f32le", "mp4", "flt"), ("pcm_f64be", "mov", "dbl"), ("pcm_u8", "mov", "u8")),
            *(("pcm_s8", "mov", "u8"), ("pcm_s16le", "wav", "s16"), ("pcm_s24le", "wav", "s32")),
            *(("pcm_s32le", "wav", "s32"), ("pcm_f32le", "wav", "flt"), ("pcm_f64le", "wav", "dbl")),
            ("pcm_u8", "wav", "u8"),
        )
    },
    "pcm, mov, 5.1, 96 kHz": lambda: record("pcm_s16le", "mov", "s16", rate=96_000, layout="5.1"),
    "pcm, wav, 5.1": lambda: record("pcm_s16le", "wav", "s16", layout="5.1"),
    "pcm, wav, rf64": lambda: record("pcm_s16le", "wav", "s16", flags={"rf64": "always"}),
}


@cache
def film_of(name: str) -> bytes:
    """Return the film of a kind, written once in each process."""
    return FILMS[name]()


@cache
def sound(name: str) -> bytes:
    """Return the file of a kind of sound, written once in each process."""
    return SOUNDS[name]()


@cache
def kind(name: str) -> bytes:
    """Return the file of a kind, written once in each process."""
    return KINDS[name]()


def whole(data: bytes, form: str = "rgb24") -> tuple[np.ndarray, np.ndarray]:
    """Return the times in seconds, and the frames, of the first video track of a file, as PyAV decodes all of it."""
    with av.open(io.BytesIO(data)) as container:
        [stream, *_] = container.streams.video
        frames = [
            (float(each.pts * stream.time_base), each.to_ndarray(format=form)) for each in container.decode(stream)
        ]
    return np.array([at for at, _ in frames]), np.stack([each for _, each in frames])
