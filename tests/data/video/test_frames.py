"""Tables of many files: read with one request or two each, equal to those of each file, small, shared with workers."""

import multiprocessing
import pickle

import numpy as np
import pytest

from penstock.data.catalog.discovery.shards import find_shards
from penstock.data.video.frames import Table, VideoFormat, open_videos, tabulate
from penstock.errors import Damaged, NotFound, Unsupported
from tests.data.video.files import kind
from tests.data.video.moov import file, walked

NAMES = ("h264, open groups", "variable rate", "av1, g=2", "sound after", "prores")


def opened(urls, store=None, track=None):
    return open_videos(find_shards(urls, VideoFormat(track), {}, store))


def same(one: Table, other: Table) -> bool:
    return one.setup == other.setup and all(map(np.array_equal, one[2:], other[2:]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    for number, name in enumerate(NAMES):
        (folder / f"{number}.{'mov' if name == 'prores' else 'mp4'}").write_bytes(kind(name))
    (folder / "notes.txt").write_text("no video")
    return folder


def test_tables_are_those_of_each_file(folder):
    videos = opened(f"{folder}/")
    assert [key.rpartition("/")[2][0] for key in videos.keys] == [*"01234"]
    assert videos.counts.tolist() == [60] * 5
    for number, name in enumerate(NAMES):
        assert same(videos.table(number), tabulate(walked(kind(name))[0]))
        assert videos.url_of(number).endswith(f"/{number}.{'mov' if name == 'prores' else 'mp4'}")
    # The three files of x264 differ in their boxes, as their edit lists and times do.
    assert len(videos.vectors[1]) <= len(NAMES) + 1


def test_tables_are_small_and_reach_a_spawned_process(tmp_path):
    for number in range(40):
        (tmp_path / f"{number:02}.mp4").write_bytes(file([100] * 2000, keys=[*range(1, 2001, 2)], front=True))
    videos = opened(f"{tmp_path}/")
    # 4 bytes for a frame, and 4 for each second one.
    memory_bytes = sum(each.values.nbytes for each in videos.vectors)
    assert memory_bytes < 6.4 * videos.counts.sum()
    assert len(pickle.dumps(videos)) > memory_bytes
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_sum_of, (videos,)) == _sum_of(videos)


def _sum_of(videos):
    return sum(int(videos.table(number).sizes.sum()) + int(videos.table(number).keys.sum()) for number in range(40))


def test_index_takes_one_request_a_file_or_two_if_moov_is_at_its_end(s3_faults):
    s3_faults.make("index")
    large = {"keys": [1], "sizes": [9000] * 200}
    for number in range(20):
        s3_faults.put("index", f"front/{number:02}.mp4", file(**large, front=True))
        s3_faults.put("index", f"end/{number:02}.mp4", file(**large))
        s3_faults.put("index", f"small/{number:02}.mp4", file())
    for prefix, count in (("front", 20), ("end", 40), ("small", 20)):
        before = len(s3_faults.seen("get"))
        assert len(opened(f"s3://index/{prefix}/", s3_faults.store)) == 20
        assert len(s3_faults.seen("get")) - before == count


@pytest.mark.parametrize(
    ("name", "data", "error", "says"),
    [
        ("a.mp4", b"not a video at all", Damaged, "begins with b'not a vi'"),
        ("a.mov", file(keys=(9,)), Damaged, "do not ascend"),
        ("a.mp4", file(mdhd=b""), Damaged, "no box 'mdhd'"),
        ("a.mkv", b"\x1aE\xdf\xa3" + bytes(99), Unsupported, "Matroska"),
        ("a.mp4", b"", Damaged, "0 bytes"),
    ],
)
def test_error_names_the_file(tmp_path, name, data, error, says):
    (tmp_path / name).write_bytes(data)
    (tmp_path / "b.mp4").write_bytes(file())
    with pytest.raises(error, match=f"{says}(.|\n)*{name}"):
        opened([f"{tmp_path}/b.mp4", f"{tmp_path}/{name}"])


def test_folder_without_videos_is_refused(tmp_path):
    (tmp_path / "a.mkv").write_bytes(b"")
    with pytest.raises(NotFound, match=r"\.mp4, \.mov, \.m4v"):
        opened(f"{tmp_path}/")
