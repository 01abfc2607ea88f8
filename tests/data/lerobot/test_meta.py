"""Descriptions of LeRobot datasets that cannot be followed are refused by name."""

import json

import pytest

import penstock as ps
from penstock.errors import Damaged, Unsupported
from tests.data.lerobot.written import put_robot, robot


def opened(folder, files, **options):
    return ps.LeRobotDataset(put_robot(folder, files), **options)


INFOS = {
    "version": ({"codebase_version": "v2.1"}, Unsupported, r"version 'v2\.1' .*convert_dataset_v21_to_v30"),
    "fps": ({"fps": 0}, Damaged, "fps must be above 0"),
    "fps-text": ({"fps": "ten"}, Damaged, "fps must be a finite number, got a text"),
    "features": ({"features": {}}, Damaged, "the features lack 'timestamp'"),
    "outside": ({"data_path": "../{chunk_index}/{file_index}"}, Damaged, "must be below its folder, got '../0/0'"),
    "absolute": ({"data_path": "/etc/{chunk_index}/{file_index}"}, Damaged, "must be below its folder"),
    "attribute": ({"data_path": "{chunk_index.real}{file_index}"}, Damaged, "a template of paths must use video_key"),
    "width": ({"video_path": "{video_key}{chunk_index:09999999999d}{file_index}"}, Damaged, "a template of paths"),
    "alike": ({"data_path": "data/{chunk_index}.parquet"}, Damaged, "gives several files one path"),
    "one-video": ({"video_path": "videos/{chunk_index}-{file_index}.mp4"}, Damaged, "two cameras have the same video"),
    "no-template": ({"video_path": None}, Damaged, "has videos and no video_path"),
}


@pytest.mark.parametrize(("info", "error", "says"), INFOS.values(), ids=INFOS.keys())
def test_description_that_cannot_be_followed_is_refused(tmp_path, info, error, says):
    with pytest.raises(error, match=says):
        opened(tmp_path, robot(info=info))


@pytest.mark.parametrize(
    ("body", "says"),
    [(b"{", "not JSON"), (b"[]", "must be an object"), (b'{"codebase_version": "v3.0"}', "fps is missing")],
)
def test_description_without_the_fields_of_lerobot_is_damaged(tmp_path, body, says):
    with pytest.raises(Damaged, match=says):
        opened(tmp_path, {**robot(), "meta/info.json": body})


def test_statistics_are_optional(tmp_path):
    files = robot()
    del files["meta/stats.json"]
    assert opened(tmp_path, files).stats is None
    with pytest.raises(Damaged, match=r"statistics"):
        opened(tmp_path, {**files, "meta/stats.json": json.dumps({"action": 1}).encode()})
