"""Datasets of videos and of robots are indexed, sliced and ordered in the same way."""

import pytest

import penstock as ps
from penstock.errors import NotFound, Unusable
from tests.data.datasets.ranks import ranks
from tests.data.lerobot.written import put_robot, robot
from tests.data.video.files import kind


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    videos = tmp_path_factory.mktemp("videos")
    for number in range(2):
        (videos / f"{number}.mp4").write_bytes(kind("h264, moov in front"))
    return videos, put_robot(tmp_path_factory.mktemp("robot"), robot())


@pytest.fixture(params=["VideoDataset", "LeRobotDataset"])
def opened(request, folders):
    """Return a function that opens a dataset of at least 30 samples."""
    if request.param == "VideoDataset":
        return lambda **options: ps.VideoDataset.from_shards(f"{folders[0]}/", frames=4, **options)
    return lambda **options: ps.LeRobotDataset(folders[1], fields=["index", "observation.images.top"], **options)


def number_of(sample):
    """Return the number of a sample, as its content shows it."""
    if isinstance(sample, dict):
        return int(sample["index"])
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
    with pytest.raises(Unusable, match=f"slices of {type(dataset).__name__} must have step 1, got step {step}$"):
        dataset[::step]


def test_slice_of_an_ordered_dataset_is_read_in_its_own_runs(opened):
    ordered = opened().ordered(ps.order.Lanes(3, 2, lanes=1))
    assert [*map(number_of, ordered[8:13].samples(range(5), 1))] == [*range(8, 13)]


def test_failing_transform_names_the_sample(opened):
    dataset = opened(transform=lambda sample: sample.nothing)
    with pytest.raises(AttributeError) as caught:
        dataset[3]
    assert f"while transforming sample 3 of {dataset.url_of(3)}" in caught.value.__notes__
    dataset = opened(transform=lambda _: next(iter(())))
    for loader in (dataset, ps.DataLoader(dataset, 2), ps.DataLoader(dataset, 2, num_workers=1)):
        with pytest.raises(RuntimeError, match=r"the transform of sample 0 of file://.* raised StopIteration"):
            list(loader)


def _open_both(bucket, store):
    """Open the two datasets of a bucket on a rank; return what they have, and the digests of their contents."""
    clips = ps.VideoDataset.from_shards(f"s3://{bucket}/videos/", frames=4, store=store)
    robot_dataset = ps.LeRobotDataset(f"s3://{bucket}/robot/", store=store)
    return [(len(each), each.contents.digest, number_of(each[7])) for each in (clips, robot_dataset)]


def _open_missing(bucket, store):
    for make in (ps.VideoDataset.from_shards, ps.LeRobotDataset):
        with pytest.raises(NotFound):
            make(f"s3://{bucket}/nothing/", store=store)


@pytest.mark.parametrize("world", [2, 5])
def test_ranks_of_a_group_open_with_the_requests_of_one(s3_faults, tmp_path, world):
    s3_faults.make(bucket := f"group{world}")
    for number in range(3):
        s3_faults.put(bucket, f"videos/{number}.mp4", kind("h264, moov in front"))
    for name, body in robot().items():
        s3_faults.put(bucket, f"robot/{name}", body)

    def count(work):
        """Return what ``work`` returns, and how many requests of each kind it makes but for those of samples."""
        before = [len(s3_faults.seen(verb, bucket)) for verb in ("list", "head", "get")]
        found = work()
        after = [len(s3_faults.seen(verb, bucket)) for verb in ("list", "head", "get")]
        return found, [stop - start for start, stop in zip(before, after, strict=True)]

    expected, (lists, heads, gets) = count(lambda: _open_both(bucket, s3_faults.store))
    found, made = count(lambda: ranks(world, f"file://{tmp_path / 'group'}", _open_both, bucket, s3_faults.store))
    assert found == [expected] * world
    # Each rank reads its own samples: one request of a clip, and one of each camera.
    assert made == [lists, heads, gets + 3 * (world - 1)]
    _, missing = count(lambda: _open_missing(bucket, s3_faults.store))
    answers, made = count(
        lambda: ranks(world, f"file://{tmp_path / 'missing'}", _open_missing, bucket, s3_faults.store)
    )
    assert answers == [None] * world
    assert made == missing
