"""Windows of sound files are those of the whole file, in every order, on workers, after any resumption."""

import io
import itertools
import pickle

import numpy as np
import pytest
import soundfile
import torch

import penstock as ps
from penstock.errors import Changed, Damaged, NotFound, StateMismatch, Unsupported, Unusable
from penstock.testing.restarts import check_restarts
from tests.data.video.files import SOUNDS, film_of, kind, sound, whole_audio
from tests.data.video.moov import wave

NAMES = ("pcm_s16le, wav", "aac, mp4", "flac", "aac, ipod, mono, 16 kHz", "pcm, wav, rf64", "pcm_s24le, mov")
ORDERS = {
    "catalog": False,
    "full": True,
    "lanes": ps.order.Lanes(block_bytes=6000, window_blocks=3),
    "blocks": ps.order.BlockShuffle(block_bytes=6000, window_blocks=3),
    "defaults": ps.order.Lanes(),
}


def suffix(name):
    return "wav" if "wav" in name else "m4a" if "ipod" in name else "mov" if "mov" in name else "mp4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    for number, name in enumerate(NAMES):
        inner = folder / ("even", "odd")[number % 2]
        inner.mkdir(exist_ok=True)
        (inner / f"{number:02}.{suffix(name)}").write_bytes(sound(name))
    return folder


def opened(folder, **options):
    return ps.AudioDataset.from_shards(f"{folder}/", **{"seconds": 0.1, **options})


def heard(clip):
    return clip.key.rpartition("/")[2], clip.seconds, clip.sample_rate, clip.audio.numpy().tobytes()


@pytest.mark.parametrize(("seconds", "stride"), [(0.1, None), (0.25, 0.1), (0.1, 0.3)])
def test_windows_are_those_of_the_whole_file(folder, seconds, stride):
    windows = opened(folder, seconds=seconds, stride=stride)
    found = [*windows]
    for number, name in enumerate(NAMES):
        expected = whole_audio(sound(name))
        clips = [each for each in found if each.key.rpartition("/")[2].startswith(f"{number:02}")]
        rate = clips[0].sample_rate
        length, step = round(seconds * rate), round((stride or seconds) * rate)
        assert len(clips) == (round(1.3 * rate) - length) // step + 1
        for at, clip in enumerate(clips):
            assert clip.seconds == at * step / rate
            assert clip.audio.dtype == torch.float32
            assert np.array_equal(clip.audio, expected[:, at * step : at * step + length])
    covered = {(0.1, None): 1.3, (0.25, 0.1): 1.25, (0.1, 0.3): 0.5}[seconds, stride]
    assert windows.left_out == pytest.approx(len(NAMES) * (1.3 - covered))
    assert heard(windows[7:11][1]) == heard(windows[8])
    assert heard(windows[-1]) == heard(found[-1])


def test_every_kind_of_sound_is_read(tmp_path):
    for number, name in enumerate(SOUNDS):
        (tmp_path / f"{number:02}.{suffix(name)}").write_bytes(sound(name))
    (tmp_path / "99.mp4").write_bytes(film_of("interleaved"))
    windows = ps.AudioDataset.from_shards(f"{tmp_path}/", seconds=1)
    assert len(windows) == len(SOUNDS) + 4
    assert repr(windows).startswith(f"<AudioDataset of {len(SOUNDS) + 4} windows of 1 s; ")


def test_window_is_a_small_wav_file_for_other_readers(folder):
    for clip in (opened(folder)[0], opened(folder)[20]):
        samples, rate = soundfile.read(io.BytesIO(clip.data), dtype="float32", always_2d=True)
        assert rate == clip.sample_rate
        assert np.array_equal(samples.T, clip.audio)
        assert clip.read() == bytes(clip.data)
        assert clip.size == len(clip.data) == 44 + 4 * clip.audio.numel()
        other = pickle.loads(pickle.dumps(clip))
        assert heard(other) == heard(clip)
        assert other.read() == bytes(clip.data)
        assert (other.url, other.label, repr(other)) == (clip.url, clip.label, repr(clip))


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("workers", [0, 2])
def test_every_window_comes_once_in_each_order(folder, order, workers):
    loader = ps.DataLoader(
        opened(folder, transform=heard), 5, shuffle=order, num_workers=workers, collate_fn=list, seed=3
    )
    assert sorted(each for batch in loader for each in batch) == sorted(heard(each) for each in opened(folder))


def test_windows_cross_to_the_trainer_from_spawned_workers(folder):
    loader = ps.DataLoader(opened(folder)[:12], 6, num_workers=1, multiprocessing_context="spawn", collate_fn=list)
    assert [heard(each) for batch in loader for each in batch] == [heard(opened(folder)[at]) for at in range(12)]


@pytest.mark.parametrize("order", ["full", "lanes"])
def test_iteration_restarts_exactly_after_each_batch(folder, order):
    windows = opened(folder, transform=heard)
    check_restarts(lambda: ps.DataLoader(windows, 8, shuffle=ORDERS[order], collate_fn=list, seed=5))


def test_state_of_other_windows_is_refused(folder):
    state = ps.DataLoader(opened(folder), 4, shuffle=True).state_dict()
    for other in ({"stride": 0.05}, {"seconds": 0.05, "stride": 0.1}):
        with pytest.raises(StateMismatch):
            ps.DataLoader(opened(folder, **other), 4, shuffle=True).load_state_dict(state)


def test_labels_are_those_of_the_files(folder):
    windows = opened(folder, labels="folder", transform=lambda each: each.label)
    assert windows.classes == ("even", "odd")
    assert {*windows} == {0, 1}
    assert opened(folder)[0].label is None


def test_mixture_takes_windows_of_both_sources(folder):
    one, other = (
        ps.AudioDataset.from_shards(
            f"{folder}/even/00.wav", seconds=0.1, stride=each, transform=lambda each: each.audio
        )
        for each in (0.1, 0.07)
    )
    batches = [*itertools.islice(ps.DataLoader(ps.Mix({"one": one, "other": other}), 4, shuffle=True), 4)]
    assert {each.shape for each in batches} == {(4, 2, 4800)}


@pytest.fixture
def served(s3_faults):
    s3_faults.make("sounds")
    for number in range(3):
        body = np.random.default_rng(number).integers(0, 255, 400_000, np.uint8).tobytes()
        s3_faults.put("sounds", f"long/{number}.wav", wave(body, rate=8000))
    return s3_faults


def test_a_window_takes_one_request_of_its_bytes_and_lanes_take_fewer(served):
    windows = ps.AudioDataset.from_shards("s3://sounds/long/", seconds=1, store=served.store, transform=heard)
    assert len(served.seen("get")) == 3
    assert len(windows) == 36
    assert windows.contents.total_bytes == 36 * 32_000
    for order, most in ((True, 36), (ps.order.Lanes(), 3), (ps.order.Lanes(block_bytes=128_000), 9)):
        before = len(served.seen("get"))
        loader = ps.DataLoader(windows, 4, shuffle=order, collate_fn=list, seed=1)
        assert sum(map(len, loader)) == 36
        assert len(served.seen("get")) - before == most
        # Packets of 4,096 samples: at most one more at each end of a window.
        assert loader.stats().total.size_bytes <= 36 * 32_000 + most * 2 * 16_384


def test_file_that_is_replaced_raises_changed(served):
    windows = ps.AudioDataset.from_shards("s3://sounds/long/", seconds=1, store=served.store)
    served.put("sounds", "long/1.wav", wave(bytes(400_000), rate=8000))
    assert windows[0].audio.shape == (2, 8000)
    with pytest.raises(Changed, match=r"1\.wav"):
        windows[12]
    loader = ps.DataLoader(windows, 4, shuffle=True, collate_fn=list, on_error="skip")
    assert sum(map(len, loader)) == 24
    assert len(loader.skipped) == 12


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"seconds": 0}, "seconds must be a positive number of seconds"),
        ({"seconds": float("nan")}, "seconds must be a positive number"),
        ({"seconds": "1"}, "seconds must be a positive number"),
        ({"seconds": True}, "seconds must be a positive number"),
        ({"stride": -1}, "stride must be a positive number"),
        ({"seconds": 1e9}, "at most 2.20"),
        ({"track": 0}, "track must be"),
        ({"labels": 3}, "labels= must be"),
        ({"transform": 3}, "transform must be a function of a clip"),
        ({"seconds": 2}, r"windows of 2 s fit into none of 6 files: the longest has 1\.300 s; pass fewer seconds="),
    ],
)
def test_argument_out_of_range_is_refused(folder, options, says):
    with pytest.raises(Unusable, match=says):
        opened(folder, **options)


def test_files_without_sound_and_of_other_kinds_are_refused_by_name(tmp_path):
    with pytest.raises(Unusable, match=r"create an AudioDataset by AudioDataset\.from_shards"):
        ps.AudioDataset("s3://bucket/")
    with pytest.raises(NotFound):
        ps.AudioDataset.from_shards(f"{tmp_path}/none/")
    (tmp_path / "a.mp4").write_bytes(kind("vp9"))
    with pytest.raises(Unsupported, match=r"has no audio track(.|\n)*a\.mp4"):
        ps.AudioDataset.from_shards(f"{tmp_path}/")
    with pytest.raises(Unsupported, match=r"no audio track 1, and its audio tracks are \[2\]"):
        (tmp_path / "a.mp4").write_bytes(film_of("interleaved"))
        ps.AudioDataset.from_shards(f"{tmp_path}/a.mp4", track=1)
    assert len(ps.AudioDataset.from_shards(f"{tmp_path}/a.mp4", seconds=1, track=2)) == 4
    (tmp_path / "b.flac").write_bytes(b"fLaC" + bytes(99))
    with pytest.raises(Unsupported, match=r"is FLAC, .*ffmpeg -i IN\.flac -c copy OUT\.mp4"):
        ps.AudioDataset.from_shards([f"{tmp_path}/b.flac"])
    (tmp_path / "c.wav").write_bytes(wave()[:5000])
    with pytest.raises(Damaged, match=r"cut short(.|\n)*c\.wav"):
        ps.AudioDataset.from_shards(f"{tmp_path}/c.wav")
