"""Clips of a dataset are those of whole files, in every order, on ranks and workers, after any resumption."""

import hashlib
import io
import itertools
import json
import pickle
import sys

import av
import numpy as np
import pytest
import torch

import penstock as ps
from penstock.data.order.orders import FullShuffle
from penstock.display import size
from penstock.errors import Changed, Damaged, NotFound, StateMismatch, Unusable
from penstock.testing.restarts import check_restarts
from tests.data.reads import spans_of
from tests.data.video.files import FILMS, KINDS, encode, film_of, kind, number_in, whole, whole_audio

FILES = ("h264, moov in front", "av1, g=2", "vp9", "h264, open groups")
ORDERS = {
    "catalog": False,
    "full": True,
    "lanes": ps.order.Lanes(block_bytes=6000, window_blocks=3),
    "blocks": ps.order.BlockShuffle(block_bytes=6000, window_blocks=3),
    "by-number": ps.order.BlockShuffle(7, 3),
    "lanes-in-order": ps.order.Lanes(9, shuffle=False),
    "defaults": ps.order.Lanes(),
}


def drawn(clip):
    """Return the number of the clip's file, and the numbers drawn into its frames."""
    return int(clip.key.rsplit("/", 1)[-1][:2]), [number_in(each.permute(1, 2, 0).numpy()) for each in clip.frames]


def fill(folder, names):
    for number, name in enumerate(names):
        inner = folder / ("even", "odd")[number % 2]
        inner.mkdir(exist_ok=True)
        (inner / f"{number:02}.mp4").write_bytes(kind(name))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("videos"), FILES)


@pytest.fixture(scope="module")
def every_kind(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("kinds"), KINDS)


def opened(folder, **options):
    return ps.VideoDataset.from_shards(f"{folder}/", **{"frames": 5, "every": 2, "stride": 7, **options})


def test_clips_of_every_kind_are_those_of_the_whole_file(every_kind):
    dataset = opened(every_kind, frames=3, every=3, stride=11)
    expected = {number: whole(kind(name)) for number, name in enumerate(KINDS)}
    clips = dataset.__getitems__(range(len(dataset)))
    for clip in clips:
        seconds, pictures = expected[int(clip.key[-6:-4])]
        at = [int(np.abs(seconds - each).argmin()) for each in clip.seconds.tolist()]
        assert np.abs(seconds[at] - clip.seconds.numpy()).max() < 1e-6
        assert clip.frames.dtype == torch.uint8
        assert clip.frames.shape == (3, 3, 64, 96)
        assert np.array_equal(clip.frames.permute(0, 2, 3, 1), pictures[at])
        # Other decoders read the same frames from the small file, and so does this clip in another process.
        with av.open(clip) as container:
            found = [each.to_ndarray(format="rgb24") for each in container.decode(video=0)]
        assert np.array_equal(np.stack([found[place] for place in clip.places]), pictures[at])
        other = pickle.loads(pickle.dumps(clip))
        assert torch.equal(other.frames, clip.frames)
        assert (other.key, other.places, other.seconds.tolist()) == (clip.key, clip.places, clip.seconds.tolist())
        assert other.read() == bytes(clip.data) == bytes(other.data)
        assert clip.rotation == (90 if "rotated" in [*KINDS][int(clip.key[-6:-4])] else 0)


def test_clips_are_windows_within_files(folder):
    dataset = opened(folder)
    starts = [*range(0, 60 - 9 + 1, 7)]
    assert [drawn(each) for each in dataset] == [
        (file, [start + 2 * at for at in range(5)]) for file in (0, 2, 1, 3) for start in starts
    ]
    assert dataset.left_out == 4 * (60 - starts[-1] - 9)
    assert repr(dataset) == "<VideoDataset of 32 clips of 5 frames; 8 of 240 frames in 4 files are left out>"
    assert [len(opened(folder, frames=n, every=1, stride=None)) for n in (1, 7, 60)] == [240, 32, 4]
    assert drawn(dataset[-1]) == (3, [49, 51, 53, 55, 57])
    with pytest.raises(IndexError, match="does not exist"):
        dataset[32]
    part = dataset[5:12]
    assert [drawn(each) for each in part] == [drawn(dataset[at]) for at in range(5, 12)]
    assert drawn(part[3:][1]) == drawn(dataset[9])
    assert not len(dataset[5:5])
    assert part.contents.digest != dataset.contents.digest == opened(folder).contents.digest


def test_rate_chooses_the_nearest_frames(tmp_path):
    (tmp_path / "00.mp4").write_bytes(kind("variable rate"))
    (tmp_path / "01.mp4").write_bytes(kind("video delayed"))
    dataset = opened(tmp_path, frames=4, every=1, stride=4, fps=10)
    for file, name in enumerate(("variable rate", "video delayed")):
        seconds, _ = whole(kind(name))
        clips = [each for each in dataset if drawn(each)[0] == file]
        found = [number for each in clips for number in drawn(each)[1]]
        assert found == [int(np.abs(seconds - seconds[0] - at / 10).argmin()) for at in range(len(found))]
        assert len(found) == 20
    assert dataset[0].seconds.tolist() == pytest.approx([0, 0.1, 0.2, 0.3], abs=0.02)


def test_frames_of_a_whole_file_are_spread_over_it(tmp_path):
    (tmp_path / "00.mp4").write_bytes(encode(count=200, g=4, options={"bf": "0"}))
    (tmp_path / "01.mp4").write_bytes(encode(count=3))
    spread = {"frames": 4, "every": 1, "stride": None, "spread": True}
    dataset = opened(tmp_path, **spread)
    assert [drawn(each) for each in dataset] == [(0, [25, 75, 125, 175]), (1, [0, 1, 1, 2])]
    assert (len(dataset), dataset.left_out) == (2, 0)
    for order in ORDERS.values():
        loader = ps.DataLoader(opened(tmp_path, **spread, transform=drawn), 2, shuffle=order, collate_fn=list)
        assert sorted(next(iter(loader))) == [drawn(each) for each in dataset]
    again = opened(tmp_path, **spread, transform=lambda clip: (clip.frames, clip.places))
    check_restarts(lambda: ps.DataLoader(again, 1, shuffle=True))
    clip = dataset[1]
    assert torch.equal(pickle.loads(pickle.dumps(clip)).frames, clip.frames)
    for other in ({"every": 2}, {"stride": 8}, {"fps": 2}):
        with pytest.raises(Unusable, match="spread=True takes frames of the whole file"):
            opened(tmp_path, **(spread | other))


def test_spread_frames_of_a_long_file_cost_little_of_it(s3_faults):
    s3_faults.make(name := "spread")
    data = encode(count=900, g=4, options={"bf": "0", "qp": "0"})
    s3_faults.put(name, "videos/00.mp4", data)
    clips = ps.VideoDataset.from_shards(f"s3://{name}/videos/", frames=5, spread=True, store=s3_faults.store)
    before = len(s3_faults.seen("get", name))
    assert [number_in(each) for each in clips[0].frames.permute(0, 2, 3, 1).numpy()] == [
        at % 256 for at in (90, 270, 450, 630, 810)
    ]
    assert len(s3_faults.seen("get", name)) - before == 5
    assert clips.contents.total_bytes < len(data) / 100
    assert sum(span.stop - span.start for span in clips.contents.spans_of(0, 1)) < len(data) / 40


@pytest.mark.parametrize(("size", "expected"), [((20, 50), (20, 50)), ((32,), (32, 48)), ((90,), (90, 135))])
def test_resized_frames_are_those_that_ffmpeg_scales(folder, size, expected):
    clip = opened(folder)[3]
    with av.open(clip) as container:
        pictures = [*container.decode(video=0)]
    height, width = expected
    scaled = [pictures[at].reformat(width, height, "rgb24", interpolation="BICUBIC").to_ndarray() for at in clip.places]
    found = clip.resized(*size)
    assert found.dtype == torch.uint8
    assert np.array_equal(found.permute(0, 2, 3, 1).numpy(), np.stack(scaled))
    assert torch.equal(pickle.loads(pickle.dumps(clip)).resized(*size), found)


@pytest.mark.parametrize("size", [(0,), (8, 0), ("8",), (1 << 15, (1 << 15) + 1), (8.5, 8), (None, 8)])
def test_a_size_that_no_picture_has_is_refused(folder, size):
    with pytest.raises(Unusable, match=r"height|width"):
        opened(folder)[0].resized(*size)


def test_labels_are_those_of_the_files(folder):
    dataset = opened(folder, labels="folder", transform=lambda clip: (clip.frames, clip.label))
    assert dataset.classes == ("even", "odd")
    frames, labels = next(iter(ps.DataLoader(dataset, 32)))
    assert frames.shape == (32, 5, 3, 64, 96)
    assert labels.tolist() == [0] * 16 + [1] * 16
    assert opened(folder).classes == ()
    assert opened(folder)[0].label is None


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("workers", [0, 2])
def test_every_clip_comes_once_in_each_order(folder, order, workers):
    dataset = opened(folder, transform=drawn)
    loader = ps.DataLoader(dataset, 5, shuffle=order, num_workers=workers, collate_fn=list, seed=3)
    expected = sorted(drawn(each) for each in opened(folder))
    assert sorted(each for batch in loader for each in batch) == expected
    if order is not True:
        assert loader.stats().total.requests < 32 * max(workers, 1)


def test_clips_without_a_transform_cross_to_the_trainer_from_spawned_workers(folder):
    loader = ps.DataLoader(
        opened(folder), 8, shuffle=ps.order.Lanes(), num_workers=1, multiprocessing_context="spawn", seed=3
    )
    clips = [each for batch in loader for each in batch]
    assert sorted(map(drawn, clips)) == sorted(drawn(each) for each in opened(folder))
    assert {type(each) for each in clips} == {ps.Clip}


@pytest.mark.parametrize("order", ["full", "lanes"])
def test_iteration_restarts_exactly_after_each_batch(folder, order):
    dataset = opened(folder, transform=drawn)
    check_restarts(lambda: ps.DataLoader(dataset, 8, shuffle=ORDERS[order], collate_fn=list, seed=5))


def test_state_of_other_clips_is_refused(folder):
    one, other = (ps.DataLoader(opened(folder, stride=stride), 4, shuffle=True) for stride in (7, 6))
    with pytest.raises(StateMismatch):
        other.load_state_dict(one.state_dict())


def test_mixture_takes_clips_of_both_sources(folder):
    one, other = (opened(folder, stride=stride, transform=lambda clip: clip.frames) for stride in (7, 9))
    mixed = ps.Mix({"one": one, "other": other})
    batches = [*itertools.islice(ps.DataLoader(mixed, 4, shuffle=ps.order.Lanes()), 6)]
    assert {batch.shape for batch in batches} == {(4, 5, 3, 64, 96)}


@pytest.fixture
def served(s3_faults, request):
    s3_faults.make(name := f"v{abs(hash(request.node.name))}")
    for number, codec in enumerate(FILES):
        s3_faults.put(name, f"videos/{number:02}.mp4", kind(codec))
    return s3_faults, name


def on_server(served, **options):
    server, name = served
    return ps.VideoDataset.from_shards(f"s3://{name}/videos/", store=server.store, **options)


def test_a_clip_takes_one_request_and_lanes_take_fewer(served):
    server, _ = served
    before = len(server.seen("get"))
    dataset = on_server(served, frames=6, stride=6, transform=drawn)
    assert len(server.seen("get")) - before == 4
    sizes = sum(len(kind(name)) for name in FILES)
    counts = {}
    for name, order in (("full", True), ("lanes", ps.order.Lanes(block_bytes=6000)), ("defaults", ps.order.Lanes())):
        before = len(server.seen("get"))
        loader = ps.DataLoader(dataset, 4, shuffle=order, collate_fn=list, seed=2)
        assert sum(map(len, loader)) == 40
        counts[name] = len(server.seen("get")) - before
        assert loader.stats().total.requests == counts[name]
        if name == "defaults":
            assert loader.stats().total.size_bytes < sizes
    assert counts["full"] == 40
    assert counts["defaults"] == 4
    assert 4 < counts["lanes"] < 30


@pytest.mark.parametrize(("name", "g"), [("av1, g=2", 2), ("vp9", 12), ("h264, g=2 without B-frames", 2)])
def test_bytes_of_contiguous_clips_are_little_more_than_those_of_the_packets_they_need(tmp_path, name, g):
    (tmp_path / "00.mp4").write_bytes(kind(name))
    with av.open(io.BytesIO(kind(name))) as container:
        sizes = [each.size for each in container.demux(video=0) if each.size]
    dataset = ps.VideoDataset.from_shards(f"{tmp_path}/", frames=16, stride=1)
    for index in range(len(dataset)):
        needed = sum(sizes[index // g * g : index + 16])
        [span] = spans_of(dataset.ordered(FullShuffle()), [[index]])
        assert needed <= span.stop - span.start <= 1.2 * needed
    loader = ps.DataLoader(
        ps.VideoDataset.from_shards(f"{tmp_path}/", frames=1), 8, shuffle=ps.order.Lanes(block_bytes=9000)
    )
    for _ in loader:
        pass
    assert sum(sizes) <= loader.stats().total.size_bytes <= 1.1 * sum(sizes)


def test_clip_that_cannot_be_decoded_is_left_out_and_named(served):
    server, name = served
    data = bytearray(kind("h264, moov in front"))
    middle = len(data) - 3000
    data[middle : middle + 900] = bytes(900)
    server.put(name, "videos/00.mp4", bytes(data))
    dataset = on_server(served, frames=6, transform=drawn)
    loader = ps.DataLoader(dataset, 8, shuffle=True, collate_fn=list, on_error="skip")
    found = [each for batch in loader for each in batch]
    assert 30 <= len(found) == 40 - len(loader.skipped)
    assert {each.url for each in loader.skipped} == {f"s3://{name}/videos/00.mp4"}
    assert all("Damaged: cannot decode" in each.error or "is missing" in each.error for each in loader.skipped)
    with pytest.raises(Damaged, match=r"frames? \d+"):
        [*ps.DataLoader(dataset, 8, collate_fn=list)]


def test_file_that_is_replaced_during_an_epoch_raises_changed(served):
    server, name = served
    dataset = on_server(served, frames=6, transform=drawn)
    server.put(name, "videos/03.mp4", kind("hevc"))
    loader = ps.DataLoader(dataset, 2, shuffle=False, collate_fn=list)
    seen = []
    with pytest.raises(Changed, match=r"03\.mp4"):
        seen.extend(loader)
    assert len(seen) == 15
    with pytest.raises(Changed, match=r"03\.mp4"):
        dataset[-1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"frames": 0}, "frames must be"),
        ({"every": 0}, "every must be"),
        ({"stride": -1}, "stride must be"),
        ({"frames": 1 << 20, "every": 64}, "at most 2.24 frames"),
        ({"fps": 0}, "fps must be a positive number"),
        ({"fps": float("nan")}, "fps must be a positive number"),
        ({"fps": True}, "fps must be a positive number"),
        ({"track": 0}, "track must be"),
        ({"labels": 3}, "labels= must be"),
        ({"transform": 3}, "transform must be a function of a clip"),
        ({"frames": 61, "every": 1}, r"no clip of 61 frames in 4 files: the longest has 60; pass fewer frames="),
        (
            {"frames": 61, "every": 1, "fps": 15},
            r"no clip of 61 frames at 15 per second in 4 files: the longest has 30",
        ),
    ],
)
def test_argument_out_of_range_is_refused(folder, options, says):
    with pytest.raises(Unusable, match=says):
        opened(folder, **options)


def test_dataset_is_made_by_from_shards_alone(folder, tmp_path):
    with pytest.raises(Unusable, match=r"create a VideoDataset by VideoDataset\.from_shards"):
        ps.VideoDataset("s3://bucket/")
    with pytest.raises(Unusable, match="urls must be a URL"):
        ps.VideoDataset.from_shards(3)
    with pytest.raises(NotFound):
        ps.VideoDataset.from_shards(f"{tmp_path}/none/")
    with pytest.raises(Unusable, match="concat takes"):
        ps.concat(opened(folder), opened(folder))


def test_report_names_bytes_needed_and_advises_lanes_above_four_times_them(served):
    clips = on_server(served, frames=1, transform=lambda clip: clip.seconds)
    frames = sum(clips.windows.videos.table(file).sizes.sum() for file in range(4))
    assert clips.contents.total_bytes == pytest.approx(frames, abs=1)
    assert clips[:60].contents.total_bytes == pytest.approx(frames / 4, rel=0.01)
    for order, advised in ((True, True), (ps.order.Lanes(), False), (False, False)):
        loader = ps.DataLoader(clips, 8, shuffle=order)
        for _ in loader:
            pass
        report = loader.report()
        assert report.read_bytes == loader.stats().total.size_bytes
        assert report.used_bytes == pytest.approx(frames, abs=1)
        assert (report.read_bytes > 4 * frames) == advised
        found = f"The reads are {report.read_bytes / frames:.1f} times the bytes of the samples"
        assert (found in report.recommendation) == ("shuffle=ps.order.Lanes()" in report.recommendation) == advised
        assert f"read for {size(report.used_bytes)} of samples" in str(report)
    # Clips of many frames read little more than these.
    loader = ps.DataLoader(on_server(served, frames=60, transform=drawn), 2, shuffle=True, collate_fn=list)
    assert len(list(loader)) == 2
    assert "times the bytes" not in loader.report().recommendation


def test_without_pyav_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(ps.PenstockError, match=r"decoding video needs PyAV: pip install 'penstock\[video\]'"):
        _ = opened(folder)[0].frames


def test_frames_far_apart_are_read_in_several_requests(tmp_path):
    (tmp_path / "00.mov").write_bytes(kind("prores"))
    dataset = ps.VideoDataset.from_shards(f"{tmp_path}/00.mov", frames=2, every=40, stride=3)
    assert len(dataset.windows.spans_of(0, 1)) == 2
    for order in (True, ps.order.Lanes(block_bytes=40_000)):
        loader = ps.DataLoader(dataset, 2, shuffle=order, seed=1)
        assert sorted(drawn(each)[1] for batch in loader for each in batch) == [[at, at + 40] for at in range(0, 20, 3)]


def test_file_shorter_than_a_clip_is_left_out(tmp_path):
    (tmp_path / "00.mp4").write_bytes(encode(count=3))
    (tmp_path / "01.mp4").write_bytes(kind("vp9"))
    dataset = ps.VideoDataset.from_shards(f"{tmp_path}/", frames=20)
    assert [drawn(each)[0] for each in dataset] == [1, 1, 1]
    assert dataset.left_out == 3


@pytest.fixture(scope="module")
def films(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    for number, name in enumerate(FILMS):
        (folder / f"{number:02}.{'mov' if 'mov' in name else 'mp4'}").write_bytes(film_of(name))
    return folder


def heard(clip):
    return drawn(clip)[0], round(clip.seconds[0].item(), 6), clip.sample_rate, clip.audio.numpy().tobytes()


@pytest.mark.parametrize(
    "options", [{"frames": 5, "stride": 7}, {"frames": 3, "every": 4}, {"frames": 4, "every": 2, "fps": 10}]
)
def test_audio_lasts_from_the_first_frame_to_the_end_of_the_last_as_in_the_whole_file(films, options):
    clips = [*ps.VideoDataset.from_shards(f"{films}/", audio=True, **options)]
    length = (options["frames"] - 1) * options.get("every", 1) + 1
    for number, name in enumerate(FILMS):
        expected, times = whole_audio(film_of(name)), whole(film_of(name))[0]
        # Its beginning is stated in ms; PyAV gives the padding of its last packet, too.
        end = 110_216 if "delayed" in name else 1 << 40
        for clip in (each for each in clips if int(each.key[-6:-4]) == number):
            start, last = (float(clip.seconds[at]) for at in (0, -1))
            place, rate = int(np.abs(times - last).argmin()), clip.sample_rate
            # The last clip has the end of the track, and of its padding.
            if place + 1 == len(times) or last > times[-1] - 0.2:
                continue
            seconds = length / 10 if "fps" in options else times[place + 1] - start
            assert clip.audio.dtype == torch.float32
            assert clip.audio.shape == (2, round(seconds * rate))
            first = round(start * rate)
            part = expected[:, first : min(first + clip.audio.shape[1], end)]
            wanted = np.zeros(clip.audio.shape, np.float32)
            wanted[:, : part.shape[1]] = part
            assert np.abs(clip.audio.numpy() - wanted).max() <= (1e-5 if name == "opus" else 0)
    assert {int(each.key[-6:-4]) for each in clips} == {*range(len(FILMS))}


def test_batches_of_clips_with_audio_stack(films):
    for name, options in (("02.mp4", {}), ("05.mp4", {"fps": 20})):
        clips = ps.VideoDataset.from_shards(
            f"{films}/{name}",
            frames=5,
            stride=3,
            audio=True,
            transform=lambda clip: (clip.frames, clip.audio),
            **options,
        )
        shapes = {audio.shape[1:] for _, audio in ps.DataLoader(clips, 2, shuffle=True, seed=1)}
        assert shapes == {(2, 12_000 if options else 8008)}


@pytest.mark.parametrize("order", ["full", "lanes", "blocks", "catalog"])
@pytest.mark.parametrize("workers", [0, 2])
def test_audio_is_the_same_in_each_order(films, order, workers):
    dataset = ps.VideoDataset.from_shards(f"{films}/", frames=5, audio=True, transform=heard)
    loader = ps.DataLoader(dataset, 5, shuffle=ORDERS[order], num_workers=workers, collate_fn=list, seed=3)
    expected = sorted(dataset.__getitems__(range(len(dataset))))
    assert sorted(each for batch in loader for each in batch) == expected
    assert [heard(each) for each in ps.VideoDataset.from_shards(f"{films}/", frames=5, audio=True)[3:9]] == [
        dataset[at] for at in range(3, 9)
    ]


def test_iteration_with_audio_restarts_exactly_after_each_batch(films):
    dataset = ps.VideoDataset.from_shards(f"{films}/", frames=5, audio=True, transform=heard)
    check_restarts(lambda: ps.DataLoader(dataset, 8, shuffle=ORDERS["lanes"], collate_fn=list, seed=5))


def test_clips_cross_to_another_process_with_their_audio(films):
    dataset = ps.VideoDataset.from_shards(f"{films}/", frames=5, audio=True)
    for clip in (dataset[0], dataset[-1]):
        other = pickle.loads(pickle.dumps(clip))
        assert torch.equal(other.audio, clip.audio)
        assert torch.equal(pickle.loads(pickle.dumps(other)).audio, clip.audio)
        assert other.sample_rate == clip.sample_rate > 0
    loader = ps.DataLoader(dataset[:12], 6, num_workers=1, multiprocessing_context="spawn", collate_fn=list)
    assert [heard(each) for batch in loader for each in batch] == [heard(dataset[at]) for at in range(12)]


def test_a_file_without_audio_has_empty_audio_and_is_counted_in_the_log(tmp_path, caplog):
    (tmp_path / "00.mp4").write_bytes(kind("vp9"))
    (tmp_path / "01.mp4").write_bytes(film_of("interleaved"))
    dataset = ps.VideoDataset.from_shards(f"{tmp_path}/", frames=50, audio=True)
    assert [each.message for each in caplog.records] == [
        "1 of 2 files have no audio track: audio of their clips is empty"
    ]
    assert [(tuple(each.audio.shape), each.sample_rate) for each in dataset] == [
        ((0, 0), 0),
        *[((2, 88_200), 44_100)] * 2,
    ]
    clip = pickle.loads(pickle.dumps(dataset[0]))
    assert (tuple(clip.audio.shape), clip.sample_rate) == ((0, 0), 0)


def test_audio_that_was_not_read_names_the_argument(films):
    clip = ps.VideoDataset.from_shards(f"{films}/")[0]
    for each in (clip, pickle.loads(pickle.dumps(clip))):
        for name in ("audio", "sample_rate"):
            with pytest.raises(Unusable, match=r"without audio: pass audio=True to VideoDataset\.from_shards"):
                getattr(each, name)


def test_state_is_of_clips_with_audio_or_without(films):
    with_audio = ps.VideoDataset.from_shards(f"{films}/", audio=True)
    without = ps.VideoDataset.from_shards(f"{films}/")
    windows = without.windows
    names = [key[len(windows.base) :] for key in windows.videos.keys]
    values = [1, names, windows.videos.sizes, windows.positions.tolist(), windows.shape, (0, len(without))]
    assert without.contents.digest == hashlib.sha256(json.dumps(values).encode()).hexdigest()[:32]
    assert with_audio.contents.digest != without.contents.digest
    state = ps.DataLoader(without, 4, shuffle=True).state_dict()
    with pytest.raises(StateMismatch):
        ps.DataLoader(with_audio, 4, shuffle=True).load_state_dict(state)


@pytest.fixture
def cinema(s3_faults):
    s3_faults.make("cinema")
    for number, name in enumerate(("interleaved", "ntsc, flac", "opus")):
        s3_faults.put("cinema", f"films/{number:02}.mp4", film_of(name))
    return s3_faults


def test_interleaved_audio_takes_no_request_more(cinema):
    options = {"frames": 10, "audio": True, "transform": heard, "store": cinema.store}
    before = len(cinema.seen("get"))
    dataset = ps.VideoDataset.from_shards("s3://cinema/films/", **options)
    assert len(cinema.seen("get")) - before == 3
    for order, most in ((True, len(dataset)), (ps.order.Lanes(), 3)):
        before = len(cinema.seen("get"))
        loader = ps.DataLoader(dataset, 4, shuffle=order, collate_fn=list, seed=2)
        assert sum(map(len, loader)) == len(dataset)
        assert len(cinema.seen("get")) - before == most
        assert loader.stats().total.requests == most
    assert loader.report().used_bytes == dataset.contents.total_bytes <= loader.report().read_bytes


def test_clip_whose_audio_cannot_be_decoded_is_left_out_and_a_replaced_file_is_changed(cinema):
    data = bytearray(film_of("interleaved"))
    found = ps.VideoDataset.from_shards("s3://cinema/films/00.mp4", audio=True, store=cinema.store)
    table = found.windows.videos.audio.table(0)
    places, ends = table.places_of(60, 64)
    for start, end in zip(places.tolist(), ends.tolist(), strict=True):
        data[start:end] = b"\xff" * (end - start)
    cinema.put("cinema", "films/00.mp4", bytes(data))
    with pytest.raises(Changed, match=r"00\.mp4"):
        found[0]
    dataset = ps.VideoDataset.from_shards(
        "s3://cinema/films/", frames=10, audio=True, transform=heard, store=cinema.store
    )
    loader = ps.DataLoader(dataset, 4, shuffle=True, collate_fn=list, on_error="skip")
    assert sum(map(len, loader)) == len(dataset) - len(loader.skipped) < len(dataset)
    assert all("cannot decode the audio" in each.error and "00.mp4" in each.url for each in loader.skipped)


def test_mixture_takes_clips_with_audio(films):
    one, other = (
        ps.VideoDataset.from_shards(
            f"{films}/00.mp4", frames=5, stride=stride, audio=True, transform=lambda clip: clip.audio
        )
        for stride in (3, 5)
    )
    batches = [*itertools.islice(ps.DataLoader(ps.Mix({"one": one, "other": other}), 4, shuffle=ps.order.Lanes()), 6)]
    assert {batch.shape for batch in batches} == {(4, 2, 8820)}


@pytest.mark.parametrize("audio", ["yes", None, 2])
def test_audio_must_be_true_or_false(films, audio):
    with pytest.raises(Unusable, match="audio must be True or False"):
        ps.VideoDataset.from_shards(f"{films}/", audio=audio)
