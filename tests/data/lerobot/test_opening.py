"""LeRobot datasets that contradict themselves, or that arguments do not fit, are refused by name before any batch."""

import numpy as np
import pytest

import penstock as ps
from penstock.errors import Damaged, InvalidURL, NotFound, Unsupported
from tests.data.lerobot.written import FPS, LENGTHS, TOP, WRIST, features_of, number_in, put_robot, robot, rows_of

COUNT = sum(LENGTHS)


def opened(folder, files, **options):
    return ps.LeRobotDataset(put_robot(folder, files), **options)


EPISODES = {
    "rows": ({"dataset_to_index": np.cumsum(LENGTHS) + 1}, Damaged, "the episodes have 36 rows, and their files 31"),
    "huge": ({"dataset_to_index": np.array([7, 12, 21, 25, 1 << 62])}, Damaged, "and their files 31"),
    "empty": ({"dataset_to_index": np.array([0, 12, 21, 25, 31])}, Damaged, "at least one row each"),
    "negative": ({"data/file_index": np.array([-1, 0, 0, 1, 1])}, Damaged, "'data/file_index' must hold whole numbers"),
    "fractions": ({"data/file_index": np.array([0.5, 0, 0, 1, 1])}, Damaged, "must hold whole numbers from 0 on"),
    "texts": ({"data/file_index": np.array(["a"] * 5)}, Unsupported, "holds string, and numbers are needed"),
    "twice": ({"episode_index": np.zeros(5, int)}, Damaged, "must have different numbers"),
    "file": ({"data/file_index": np.array([0, 0, 0, 1, 9])}, NotFound, r"a file of rows .*data/chunk-000/file-009"),
    "video": ({f"videos/{TOP}/file_index": np.array([0, 0, 1, 2, 3])}, NotFound, r"a video .*top/chunk-000/file-003"),
    "time": ({f"videos/{TOP}/from_timestamp": np.array([0, np.nan, 0, 0, 0.4])}, Damaged, "not finite"),
    "late": (
        {f"videos/{TOP}/from_timestamp": np.array([0, 0.7, 0, 0, 0.45])},
        Damaged,
        r"no frame is within 0\.0001 s of the time .* of row \d+: .*; 6 of 10 rows .*top/chunk-000/file-002\.mp4",
    ),
    "beyond": ({f"videos/{WRIST}/from_timestamp": np.array([0, 0, 0.5, 1.4, 1e30])}, Damaged, "6 of 24 rows"),
}


@pytest.mark.parametrize(("episodes", "error", "says"), EPISODES.values(), ids=EPISODES.keys())
def test_episodes_that_lie_are_refused(tmp_path, episodes, error, says):
    with pytest.raises(error, match=says):
        opened(tmp_path, robot(episodes=episodes))


COLUMNS = {
    "index": ({"index": np.arange(1, COUNT + 1)}, Unsupported, "rows must be numbered through the whole dataset"),
    "episode": ({"episode_index": np.zeros(COUNT, int)}, Unsupported, "rows must be numbered"),
    "task": ({"task_index": np.full(COUNT, 2)}, Damaged, "not among the 2 tasks"),
    "time": ({"timestamp": np.full(COUNT, np.nan, np.float32)}, Damaged, "no frame is within"),
}


@pytest.mark.parametrize(("columns", "error", "says"), COLUMNS.values(), ids=COLUMNS.keys())
def test_rows_that_contradict_the_episodes_are_refused(tmp_path, columns, error, says):
    with pytest.raises(error, match=says):
        opened(tmp_path, robot(columns=columns))


FEATURES = {
    "shape": ("action", {"dtype": "float32", "shape": [3]}, Damaged, "'action' has 2 values in a row, .* state 3"),
    "type": (
        "action",
        {"dtype": "int64", "shape": [2]},
        Damaged,
        "'action' has float32 values, and the features state",
    ),
    "missing": ("other", {"dtype": "int64", "shape": [1]}, Damaged, "lacks a column: unknown column 'other'"),
    "image": ("picture", {"dtype": "image", "shape": [3, 8, 8]}, Unsupported, "'picture' has values of type 'image'"),
    "text": ("words", {"dtype": "string", "shape": [1]}, Unsupported, "'words' has values of type 'string'"),
    "depth": (
        "depth",
        {"dtype": "video", "shape": [8, 8, 1], "info": {"video.is_depth_map": True}},
        Unsupported,
        "'depth' has depth, which are not supported: pass fields= without it",
    ),
}


@pytest.mark.parametrize(("name", "feature", "error", "says"), FEATURES.values(), ids=FEATURES.keys())
def test_features_that_do_not_fit_their_columns_are_refused_unless_left_out(tmp_path, name, feature, error, says):
    features = {**features_of(rows_of(LENGTHS), [TOP, WRIST]), name: feature}
    files = robot(info={"features": features})
    with pytest.raises(error, match=says):
        opened(tmp_path, files)
    assert ps.LeRobotDataset(tmp_path, fields=["observation.state", "task"])[4].keys() == {"observation.state", "task"}


@pytest.mark.parametrize(
    ("lost", "says"),
    [
        ("meta/info.json", "found no LeRobot dataset: pass the URL of the folder that has meta/info.json"),
        ("meta/tasks.parquet", "has no file of tasks"),
        ("meta/episodes/chunk-000/file-000.parquet", "has no file of episodes"),
        ("data/chunk-000/file-001.parquet", "names a file of rows that does not exist"),
        (f"videos/{WRIST}/chunk-000/file-001.mp4", "names a video that does not exist"),
    ],
)
def test_missing_file_is_not_found_before_the_first_batch(tmp_path, lost, says):
    files = robot()
    del files[lost]
    with pytest.raises(NotFound, match=says):
        opened(tmp_path, files)


@pytest.mark.parametrize(
    "name", ["meta/tasks.parquet", "data/chunk-000/file-000.parquet", f"videos/{TOP}/chunk-000/file-000.mp4"]
)
@pytest.mark.parametrize("kept", [0, 11, 300])
def test_truncated_file_is_damaged_by_name(tmp_path, name, kept):
    files = robot()
    with pytest.raises(Damaged, match=name.rpartition("/")[2]):
        opened(tmp_path, {**files, name: files[name][:kept]})


def test_times_of_a_long_video_are_compared_as_lerobot_compares_them(tmp_path):
    # A float32 of 3,000 s is up to 0.00012 s away from the time that it stands for.
    columns = rows_of((40,))
    columns["timestamp"] = (np.arange(40) / FPS + 2999.98).astype(np.float32)
    files = robot(
        (40,),
        videos={TOP: [(0,)]},
        data=[(0,)],
        columns=columns,
        episodes={f"videos/{TOP}/from_timestamp": np.array([-2999.98])},
    )
    assert len(opened(tmp_path, files)) == 40


def test_loose_tolerance_takes_the_nearest_frame(tmp_path):
    files = robot(episodes={f"videos/{TOP}/from_timestamp": np.array([0, 0.7, 0.04, 0, 0.4])})
    with pytest.raises(Damaged, match="9 of 9 rows"):
        opened(tmp_path, files)
    dataset = ps.LeRobotDataset(tmp_path, tolerance_s=np.float32(0.045))
    assert [number_in(dataset[row][TOP]) for row in range(12, 21)] == [*range(12, 21)]


def test_name_of_the_hub_is_advised_as_a_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotFound, match=r"'lerobot/pusht'; .* Hub is hf://datasets/lerobot/pusht"):
        ps.LeRobotDataset("lerobot/pusht")
    with pytest.raises(InvalidURL, match=r"is hf://datasets/lerobot/pusht, got its page"):
        ps.LeRobotDataset("https://huggingface.co/datasets/lerobot/pusht/tree/main")
    # A folder of such a name that lacks another file.
    put_robot(tmp_path / "lerobot/pusht", {name: body for name, body in robot().items() if "tasks" not in name})
    for name in ("lerobot/pusht", "lerobot", tmp_path / "other/pusht"):
        with pytest.raises(NotFound, match=r"^(?!.*hf://)"):
            ps.LeRobotDataset(name)
