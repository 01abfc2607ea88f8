"""Clips of videos: ``ps.VideoDataset`` over a store, compared with PyAV on local files.

Local files are decoded whole, in order; and clip by clip in random order, by seeking, which is the work of the loader.

python -m benchmarks.clips
"""

import argparse
import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import av
import numpy as np
from av.video.reformatter import VideoReformatter

import penstock as ps
from penstock.testing.faults import FaultServer, Settings

WIDTH, HEIGHT, RATE = 320, 240, 30


def encode(count: int, g: int, seed: int) -> bytes:
    """Return an MP4 file of a scene that moves, with a key frame every ``g`` frames."""
    scene = np.random.default_rng(seed).integers(0, 255, (HEIGHT // 8 + 8, WIDTH // 8 + 8, 3), dtype=np.uint8)
    scene = scene.repeat(8, 0).repeat(8, 1)
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream = out.add_stream("libx264", RATE, options={"g": str(g), "preset": "veryfast"})
        stream.pix_fmt, stream.width, stream.height = "yuv420p", WIDTH, HEIGHT
        for number in range(count):
            at = number % 60
            frame = av.VideoFrame.from_ndarray(scene[at // 2 : at // 2 + HEIGHT, at : at + WIDTH], format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return file.getvalue()


class Cost(NamedTuple):
    """Frames per second, and CPU ms per frame, of this process."""

    rate: float
    cpu_ms: float


def measure(work: Callable[[], int]) -> Cost:
    """Return the cost of a function that returns the number of its frames."""
    began, busy = time.perf_counter(), time.process_time()
    frames = work()
    return Cost(frames / (time.perf_counter() - began), 1e3 * (time.process_time() - busy) / frames)


def decode_files(paths: list[Path], together: int) -> int:
    """Decode whole files in order to clips, on one thread."""
    frames = 0
    convert = VideoReformatter().reformat
    for path in paths:
        with open_file(path) as container:
            clip: list[np.ndarray] = []
            for frame in container.decode(video=0):
                # By itself, to_ndarray would convert in a thread for each processor.
                clip.append(convert(frame, format="rgb24", threads=1).to_ndarray())
                if len(clip) == together:
                    frames += len(np.stack(clip))
                    clip.clear()
    return frames


def decode_clips(paths: list[Path], together: int, count: int) -> int:
    """Decode the same clips in random order, from files that stay open: seek to a key frame, and decode from there."""
    convert = VideoReformatter().reformat
    files = [open_file(path) for path in paths]
    places = [(file, first) for file in range(len(paths)) for first in range(0, count - together + 1, together)]
    np.random.default_rng(0).shuffle(places)
    for file, first in places:
        stream = files[file].streams.video[0]
        begin, stop = (round(each / RATE / stream.time_base) for each in (first, first + together))
        files[file].seek(begin, stream=stream)
        clip: dict[int, np.ndarray] = {}
        for frame in files[file].decode(stream):
            if begin <= frame.pts < stop:
                clip[frame.pts] = convert(frame, format="rgb24", threads=1).to_ndarray()
                if len(clip) == together:
                    break
        np.stack([clip[at] for at in sorted(clip)])
    for each in files:
        each.close()
    return len(places) * together


def open_file(path: Path) -> Any:
    container = av.open(str(path))
    container.streams.video[0].codec_context.thread_count = 1
    return container


def read_clips(server: FaultServer, order: Any, frames: int, factors: list[float]) -> int:
    """Read an epoch; note its bytes as a multiple of those of the files."""
    clips = ps.VideoDataset.from_shards(
        "s3://videos/", frames=frames, transform=lambda clip: clip.frames, store=server.store
    )
    loader = ps.DataLoader(clips, 8, shuffle=order, collate_fn=len, decode_threads=1)
    found = sum(loader) * frames
    factors.append(loader.stats().total.size_bytes / sum(clips.windows.videos.sizes))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=24, help="short epochs show the opening of the dataset")
    parser.add_argument("--distances", type=int, nargs="+", default=(2, 12), help="frames from key frame to key frame")
    parser.add_argument("--count", type=int, default=240, help="frames of a file")
    parser.add_argument("--frames", type=int, default=16, help="frames of a clip")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, of which medians are printed")
    arguments = parser.parse_args()
    for g in arguments.distances:
        files = [encode(arguments.count, g, number) for number in range(arguments.files)]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder, f"{number}.mp4") for number in range(len(files))]
            for path, data in zip(paths, files, strict=True):
                path.write_bytes(data)
            for latency_ms in (0, 30):
                with FaultServer.start(Settings(latency_ms=latency_ms)) as server:
                    for number, data in enumerate(files):
                        server.put("videos", f"{number}.mp4", data)
                    compare(server, paths, arguments, f"g={g:2}, {latency_ms:2} ms")


def compare(server: FaultServer, paths: list[Path], arguments: argparse.Namespace, label: str) -> None:
    """Print medians of rounds in which all ways alternate, since the machine may be shared."""
    factors: list[float] = []
    ways: dict[str, Callable[[], int]] = {
        "whole local files": lambda: decode_files(paths, arguments.frames),
        "local clips, by seeking": lambda: decode_clips(paths, arguments.frames, arguments.count),
        "lanes": lambda: read_clips(server, ps.order.Lanes(), arguments.frames, factors),
        "shuffle=True": lambda: read_clips(server, True, arguments.frames, factors),  # noqa: FBT003  the order
    }
    rounds = [{name: measure(work) for name, work in ways.items()} for _ in range(arguments.rounds)]
    whole, clips = ([each[name] for each in rounds] for name in [*ways][:2])
    for name in ways:
        costs = [each[name] for each in rounds]
        rate, cpu_ms = (median(each[at] for each in costs) for at in range(2))
        text = (
            f"{label}, {name:23}: {rate:5.0f} frames/s, {cpu_ms:.2f} ms of CPU a frame; of whole files and of clips: "
        )
        for other in (whole, clips):
            pairs = [*zip(costs, other, strict=True)]
            text += f"rate {median(a.rate / b.rate for a, b in pairs):.2f}, "
            text += f"CPU {median(a.cpu_ms / b.cpu_ms for a, b in pairs):.2f}; "
        print(text, flush=True)
    print(f"{label}, bytes of an epoch / bytes of the files: lanes {factors[0]:.2f}, shuffle=True {factors[1]:.2f}")


if __name__ == "__main__":
    main()
