"""Datasets of videos and of robots are opened by one rank for all."""

import pytest

import penstock as ps
from penstock.errors import NotFound
from tests.data.datasets.ranks import ranks
from tests.data.datasets.test_windows import number_of
from tests.data.lerobot.written import robot
from tests.data.video.files import kind


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
