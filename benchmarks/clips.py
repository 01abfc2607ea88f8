"""Clips of videos: ``ps.VideoDataset`` over a store, compared with PyAV that decodes the same files from a local disk.

python -m benchmarks.clips
"""

import argparse
import io
import tempfile
import time
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter

import penstock as ps
from penstock.testing.faults import FaultServer, Settings

WIDTH, HEIGHT = 320, 240


def encode(count: int, g: int, seed: int) -> bytes:
    """Return an MP4 file of a scene that moves, with a key frame every ``g`` frames."""
    scene = np.random.default_rng(seed).integers(0, 255, (HEIGHT // 8 + 8, WIDTH // 8 + 8, 3), dtype=np.uint8)
    scene = scene.repeat(8, 0).repeat(8, 1)
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as out:
        stream = out.add_stream("libx264", 30, options={"g": str(g), "preset": "veryfast"})
        stream.pix_fmt, stream.width, stream.height = "yuv420p", WIDTH, HEIGHT
        for number in range(count):
            at = number % 60
            frame = av.VideoFrame.from_ndarray(scene[at // 2 : at // 2 + HEIGHT, at : at + WIDTH], format="rgb24")
            out.mux(stream.encode(frame))
        out.mux(stream.encode())
    return file.getvalue()


def decode_locally(paths: list[Path], together: int) -> tuple[float, float]:
    """Return frames per second, and CPU ms per frame, of all files, decoded in order to clips on one thread."""
    began, busy, frames = time.perf_counter(), time.process_time(), 0
    convert = VideoReformatter().reformat
    for path in paths:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            clip: list[np.ndarray] = []
            for frame in container.decode(stream):
                # By itself, to_ndarray would convert in a thread for each processor.
                clip.append(convert(frame, format="rgb24", threads=1).to_ndarray())
                if len(clip) == together:
                    frames += len(np.stack(clip))
                    clip.clear()
    return frames / (time.perf_counter() - began), 1e3 * (time.process_time() - busy) / frames


def read_clips(server: FaultServer, order: object, frames: int) -> tuple[float, float, float]:
    """Return frames per second, CPU ms per frame, and the bytes of an epoch as a multiple of those of the files."""
    clips = ps.VideoDataset.from_shards(
        "s3://videos/", frames=frames, transform=lambda clip: clip.frames, store=server.store
    )
    loader = ps.DataLoader(clips, 8, shuffle=order, collate_fn=len, decode_threads=1)
    began, busy = time.perf_counter(), time.process_time()
    count = sum(loader) * frames
    rate, cost = count / (time.perf_counter() - began), 1e3 * (time.process_time() - busy) / count
    return rate, cost, loader.stats().total.size_bytes / sum(clips.windows.videos.sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=8)
    parser.add_argument("--count", type=int, default=240, help="frames of a file")
    parser.add_argument("--frames", type=int, default=16, help="frames of a clip")
    arguments = parser.parse_args()
    for g in (2, 12):
        files = [encode(arguments.count, g, number) for number in range(arguments.files)]
        with tempfile.TemporaryDirectory() as folder:
            paths = [Path(folder, f"{number}.mp4") for number in range(len(files))]
            for path, data in zip(paths, files, strict=True):
                path.write_bytes(data)
            for latency_ms in (0, 30):
                with FaultServer.start(Settings(latency_ms=latency_ms)) as server:
                    for number, data in enumerate(files):
                        server.put("videos", f"{number}.mp4", data)
                    for name, order in (("lanes", ps.order.Lanes()), ("shuffle=True", True)):
                        # One after the other, since the machine may be shared.
                        local, local_ms = decode_locally(paths, arguments.frames)
                        rate, cpu_ms, factor = read_clips(server, order, arguments.frames)
                        print(
                            f"g={g:2}, {latency_ms:2} ms, {name:12}: {rate:5.0f} frames/s, {rate / local:.2f} of local "
                            f"decoding; {cpu_ms:.2f} ms of CPU a frame, {cpu_ms / local_ms:.2f} of local decoding; "
                            f"{factor:.2f} of the bytes of the files",
                            flush=True,
                        )


if __name__ == "__main__":
    main()
