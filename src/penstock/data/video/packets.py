"""Frames and sound from the packets of a file, decoded by PyAV without a container, as it decodes the whole file."""

from __future__ import annotations

import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.data.reading.pool import MemoryPool
from penstock.data.video.boxes import CODECS
from penstock.data.video.frames import join_intervals
from penstock.errors import Damaged, Unsupported, require_extras

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from penstock.data.video.boxes import Setup
    from penstock.data.video.frames import Ints, Table

_local = threading.local()
# Fresh memory costs a fifth of the CPU of a clip: its pages are mapped and zeroed one by one.
_pool = MemoryPool(256 << 20)


class HeldBytes(NamedTuple):
    """Byte ranges of a file that are in memory, ascending."""

    starts: list[int]
    parts: list[memoryview]

    def take(self, start: int, stop: int) -> memoryview:
        number = bisect_right(self.starts, start) - 1
        begin = self.starts[number]
        return self.parts[number][start - begin : stop - begin]

    def has(self, stop: int) -> bool:
        """Return whether the byte before ``stop`` is there."""
        number = bisect_right(self.starts, stop - 1) - 1
        return number >= 0 and stop <= self.starts[number] + len(self.parts[number])


def decode_frames(
    table: Table, held: HeldBytes, frames: Ints, size: tuple[int, int | None] | None = None
) -> NDArray[np.uint8]:
    """Return frames as RGB: uint8, shape (frames, height, width, 3).

    Args:
        table: The table of the file.
        held: The bytes that ``table.needs`` names for the frames, and maybe more.
        frames: Numbers of the frames, in any order; a number may come twice.
        size: Height and width of the pictures; without a width, the length of their shorter side. None: as stored.

    Raises:
        MissingExtra: PyAV is not installed.
        Damaged: The decoder refused the bytes, or gave fewer frames.
        Unsupported: The size of the picture changes within the frames.
    """
    with require_extras("decoding video needs PyAV", av="video"):
        import av
    wanted, places = np.unique(frames + table.begin, return_inverse=True)
    pictures = np.zeros((0, 0, 0, 0), np.uint8)
    found = np.zeros(len(wanted), bool)
    try:
        for rank, frame in _decode_ranks(table, held, wanted):
            picture = _to_rgb(frame, size)
            if not found.any():
                pictures = _pool.empty((len(wanted), *picture.shape), picture.dtype)
            elif picture.shape != pictures.shape[1:]:
                height, width, _ = pictures.shape[1:]
                message = f"the picture changes from {width}x{height} to {picture.shape[1]}x{picture.shape[0]}"
                raise Unsupported(f"{message} within the clip: read the parts by themselves")
            at = int(np.searchsorted(wanted, rank))
            pictures[at], found[at] = picture, True
    except av.FFmpegError as error:
        raise Damaged(f"cannot decode frames {int(frames.min())} to {int(frames.max())}: {error}") from error
    if not found.all():
        missing = (wanted[~found] - table.begin).tolist()
        raise Damaged(f"the decoder returned {found.sum()} of {len(found)} frames: frame {missing[0]} is missing")
    return pictures if np.array_equal(places, np.arange(len(wanted))) else pictures[places]


def _decode_ranks(table: Table, held: HeldBytes, wanted: Ints) -> Iterator[tuple[int, Any]]:
    """Yield the rank and the frame of each of some ranks, in any order; those that a decoder omits are left out."""
    import av

    for first, stop in join_intervals(*table.needs(wanted - table.begin)):
        # A context that is kept gains nothing over a new one.
        context = open_decoder(table.setup)
        ranks = table.ranks_of(first, stop).tolist()
        left = {*wanted.tolist()} & {*ranks}
        places, ends = (each.tolist() for each in table.places_of(first, stop))
        for rank, start, end in zip(ranks, places, ends, strict=True):
            # Frames that are presented before the key frame need the group before it; an empty packet would end it.
            if rank < ranks[0] or start == end:
                continue
            packet: Any = av.Packet(held.take(start, end))  # type: ignore[arg-type]  # any buffer
            packet.pts = packet.dts = rank
            yield from _take_wanted(context.decode(packet), left)
            if not left:
                break
        else:
            yield from _take_wanted(context.decode(None), left)


def _take_wanted(frames: Sequence[Any], left: set[int]) -> Iterator[tuple[int, Any]]:
    for frame in frames:
        if frame.pts in left:
            left.discard(frame.pts)
            yield frame.pts, frame


def open_decoder(setup: Setup) -> Any:  # noqa: ANN401  PyAV's CodecContext
    """Return a decoder of single packets that runs on the thread which calls it."""
    import av

    context: Any = av.CodecContext.create(CODECS[setup.codec], "r")
    context.codec_tag = setup.codec
    # dav1d would start threads of its own.
    context.thread_count = 1
    if setup.extradata:
        context.extradata = setup.extradata
    if setup.color:
        primaries, transfer, matrix, scale = setup.color
        context.color_primaries, context.color_trc, context.colorspace = primaries, transfer, matrix
        context.color_range = scale
    return context


def _to_rgb(frame: Any, size: tuple[int, int | None] | None) -> NDArray[np.uint8]:  # noqa: ANN401  PyAV's VideoFrame
    """Return a frame as a view: uint8, shape (height, width, 3)."""
    from av.video import reformatter

    # A converter for each thread: one for each frame costs more than the conversion.
    convert = getattr(_local, "convert", None)
    if convert is None:
        convert = _local.convert = reformatter.VideoReformatter().reformat
    # Threads of its own would be started for each picture; before 17.0, PyAV had none.
    single = {"threads": 1} if hasattr(reformatter, "ColorTrc") else {}
    plane: Any = convert(frame, format="rgb24", **_scale(frame, size), **single).planes[0]
    lines = np.frombuffer(plane, np.uint8)[: plane.height * plane.line_size].reshape(plane.height, plane.line_size)
    return lines[:, : plane.width * 3].reshape(plane.height, plane.width, 3)


def _scale(frame: Any, size: tuple[int, int | None] | None) -> dict[str, Any]:  # noqa: ANN401  PyAV's VideoFrame
    """Return the arguments of a conversion for pictures of another size: see ``decode_frames``."""
    if size is None:
        return {}
    height, width = size
    if width is None:
        # The longer side in proportion, rounded down, as torchvision's Resize has it.
        shorter = min(frame.height, frame.width)
        height, width = (max(1, side * size[0] // shorter) for side in (frame.height, frame.width))
    return {"height": height, "width": width, "interpolation": "BICUBIC"}


def decode_sound(setup: Setup, rate: int, packets: list[tuple[int, memoryview]]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the samples of packets in a row, each with its time as given: shape (channels, frames).

    Raises:
        MissingExtra: PyAV is not installed.
        Damaged: The decoder refused the bytes, or gave fewer packets.
        Unsupported: The decoder gave another rate or number of channels than the file states.
    """
    with require_extras("decoding audio needs PyAV", av="video"):
        import av
    left = [tick for tick, _ in packets]
    context: Any = av.CodecContext.create(setup.codec, "r")
    context.thread_count = 1
    context.extradata = setup.extradata
    try:
        for tick, data in [*packets, (0, None)]:
            packet: Any = None if data is None else av.Packet(data)  # type: ignore[arg-type]  # any buffer
            if packet is not None:
                packet.pts = packet.dts = tick
            for frame in context.decode(packet):
                samples = frame.to_ndarray()
                channels = frame.layout.nb_channels
                if (frame.sample_rate, channels) != (rate, setup.channels):
                    raise Unsupported(
                        f"the decoder gave {channels} channels at {frame.sample_rate} Hz, and the file states "
                        f"{setup.channels} at {rate} Hz (HE-AAC?): encode it anew, "
                        "ffmpeg -i IN -c:v copy -c:a aac OUT.mp4"
                    )
                yield left.pop(0), samples if frame.format.is_planar else samples.reshape(-1, channels).T
    except av.FFmpegError as error:
        raise Damaged(f"cannot decode the audio from {packets[0][0] / rate:.3f} s: {error}") from error
    except IndexError:
        raise Damaged("the decoder returned more frames than the audio track has packets") from None
    if left:
        raise Damaged(f"the decoder returned {len(packets) - len(left)} of {len(packets)} packets of the audio track")
