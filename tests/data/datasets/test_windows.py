"""Datasets of clips, of sound, of robots and of tokens are indexed, sliced and ordered in the same way."""

import itertools

import numpy as np
import pytest
import torch

import penstock as ps
from penstock.errors import Unusable
from tests.data.lerobot.written import put_robot, robot
from tests.data.video.files import kind
from tests.data.video.moov import wave


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    videos = tmp_path_factory.mktemp("videos")
    for number in range(2):
        (videos / f"{number}.mp4").write_bytes(kind("h264, moov in front"))
        (videos / f"{number}.wav").write_bytes(wave(bytes(4 * 32_000)))
    tokens = tmp_path_factory.mktemp("tokens")
    for number in range(2):
        (tokens / f"{number}.bin").write_bytes(np.arange(64 * number, 64 * number + 64, dtype="<u2").tobytes())
    films = tmp_path_factory.mktemp("films")
    for number in range(2):
        (films / f"{number}.mp4").write_bytes(kind("sound after"))
    return videos, put_robot(tmp_path_factory.mktemp("robot"), robot()), tokens, films


@pytest.fixture(params=["VideoDataset", "VideoDataset with audio", "AudioDataset", "LeRobotDataset", "TokenDataset"])
def opened(request, folders):
    """Return a function that opens a dataset of at least 30 samples."""
    if request.param == "VideoDataset":
        return lambda **options: ps.VideoDataset.from_shards(f"{folders[0]}/", frames=4, **options)
    if request.param == "VideoDataset with audio":
        return lambda **options: ps.VideoDataset.from_shards(f"{folders[3]}/", frames=4, audio=True, **options)
    if request.param == "AudioDataset":
        return lambda **options: ps.AudioDataset.from_shards(f"{folders[0]}/*.wav", seconds=0.25, **options)
    if request.param == "TokenDataset":
        return lambda **options: ps.TokenDataset.from_shards(f"{folders[2]}/", length=4, dtype="<u2", **options)
    return lambda **options: ps.LeRobotDataset(folders[1], fields=["index", "observation.images.top"], **options)


def number_of(sample):
    """Return the number of a sample, as its content shows it."""
    if isinstance(sample, dict):
        return int(sample["index"])
    if isinstance(sample, torch.Tensor):
        return int(sample[0]) // 4
    if isinstance(sample, ps.AudioClip):
        return 16 * int(sample.key[-5]) + round(sample.seconds * 4)
    return 15 * int(sample.key[-5]) + round(float(sample.seconds[0]) * 30 / 4)


def test_samples_are_taken_by_number_list_slice_and_iteration(opened):
    dataset = opened()
    count = len(dataset)
    assert [*map(number_of, dataset)] == [*range(count)]
    assert [number_of(dataset[at]) for at in (3, -1)] == [3, count - 1]
    assert [*map(number_of, dataset.__getitems__([5, 0, 5]))] == [5, 0, 5]
    part = dataset[5:12][2:]
    assert [*map(number_of, part)] == [*range(7, 12)]
    assert part.url_of(0) == dataset.url_of(7)
    assert part.contents.digest != dataset.contents.digest
    with pytest.raises(IndexError, match="does not exist"):
        dataset[count]


def test_slice_without_samples_is_an_empty_dataset(opened):
    for part in (opened()[5:5], opened()[9:3]):
        assert len(part) == 0
        assert [*part] == []
        assert part.__getitems__([]) == []


@pytest.mark.parametrize("step", [2, -1])
def test_slice_with_a_step_is_refused(opened, step):
    dataset = opened()
    with pytest.raises(
        Unusable, match=f"slices of {type(dataset).__name__} must have step 1, got step {step}($|: pass stride=)"
    ):
        dataset[::step]


def test_slice_of_an_ordered_dataset_is_read_in_its_own_runs(opened):
    ordered = opened().ordered(ps.order.Lanes(3, 2, lanes=1))
    assert [*map(number_of, ordered[8:13].samples(range(5), 1))] == [*range(8, 13)]


@pytest.mark.parametrize("order", [ps.order.Lanes(3, 2, lanes=2), True], ids=["lanes", "full"])
def test_each_sample_comes_once_on_one_rank_then_two_then_one(opened, order):
    dataset, seen, state = opened(), [], None
    for world, batches in ((1, 1), (2, 2), (1, None)):
        states = []
        for rank in range(world):
            place = ps.Place(rank, world)
            loader = ps.DataLoader(dataset, 4 // world, shuffle=order, seed=5, collate_fn=list, place=place)
            if state is not None:
                loader.load_state_dict(state)
            iterator = iter(loader)
            seen += [number_of(each) for batch in itertools.islice(iterator, batches) for each in batch]
            states.append(loader.state_dict())
            del iterator
        assert all(each == states[0] for each in states)
        state = states[0]
    assert sorted(seen) == [*range(len(dataset))]


def test_failing_transform_names_the_sample(opened):
    dataset = opened(transform=lambda sample: sample.nothing)
    with pytest.raises(AttributeError) as caught:
        dataset[3]
    assert f"while transforming sample 3 of {dataset.url_of(3)}" in caught.value.__notes__
    dataset = opened(transform=lambda _: next(iter(())))
    for loader in (dataset, ps.DataLoader(dataset, 2), ps.DataLoader(dataset, 2, num_workers=1)):
        with pytest.raises(RuntimeError, match=r"the transform of sample 0 of file://.* raised StopIteration"):
            list(loader)
