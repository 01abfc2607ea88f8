"""Samples of LeRobot datasets: deltas that fit their rows, and ranges and blocks that fit their videos."""

import numpy as np
import pytest

import penstock as ps
from penstock.data.lerobot.samples import check_deltas
from penstock.errors import Unusable
from tests.data.lerobot.written import TOP, WRIST, number_in, put_robot, robot


def test_window_with_a_long_gap_is_several_ranges(tmp_path):
    noise = robot((60,), videos={TOP: [(0,)]}, data=[(0,)], g=1)
    dataset = ps.LeRobotDataset(put_robot(tmp_path, noise), delta_timestamps={TOP: [-3.0, 0.0]})
    for item, row in zip(dataset, range(60), strict=True):
        assert [number_in(each) for each in item[TOP]] == [max(row - 30, 0), row]
    table = dataset.contents.videos.table(0)
    # Frames of pictures that compress worse lie further apart.
    far = table._replace(places=table.places * 0 + np.arange(len(table.places)) * (1 << 20))
    assert len(table.pieces(*table.needs(np.array([0, 59])))) == 1
    assert far.pieces(*table.needs(np.array([0])))


@pytest.mark.parametrize("g", [2, 12])
def test_blocks_read_each_byte_once(tmp_path, g):
    lengths = (90, 60, 80)
    files = robot(lengths, videos={TOP: [(0, 1), (2,)], WRIST: [(0,), (1, 2)]}, data=[(0, 1, 2)], g=g)
    dataset = ps.LeRobotDataset(put_robot(tmp_path, files), fields=[TOP, WRIST])
    videos = dataset.contents.videos
    held = sum(int(videos.table(file).sizes.sum()) for file in range(len(videos)))
    for order in (ps.order.Lanes(), ps.order.Lanes(block_bytes=2_000), ps.order.BlockShuffle(block_bytes=2_000)):
        loader = ps.DataLoader(dataset, 10, shuffle=order)
        for _ in loader:
            pass
        # Blocks begin with groups of pictures.
        assert loader.stats().total.size_bytes == held
    sizes = dataset.contents.block_sizes(2_000)
    assert sizes.sum() == len(dataset)
    # No block crosses the border of two videos of a camera.
    assert {90, 150} <= {*np.cumsum(sizes).tolist()}


def test_deltas_are_rounded_to_rows():
    found = check_deltas(
        {"a": [-0.1, 0.0, 1 / 3], "b": [2], "c": [-2.0, -1.0, 0.0], "d": [-1, 0]},
        {"a": 1, "b": 1, "c": 1, "d": 1},
        30,
        1e-4,
    )
    assert {key: rows.tolist() for key, rows in found.items()} == {
        "a": [-3, 0, 10],
        "b": [60],
        "c": [-60, -30, 0],
        "d": [-30, 0],
    }
    assert check_deltas(None, {}, 30, 1e-4) == {}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"delta_timestamps": {"action": [0.05]}},
            r"'action'\] must be multiples of 1/10 s within 0\.0001 s, got 0\.05",
        ),
        ({"delta_timestamps": {"acton": [0.0]}}, r"delta_timestamps: unknown feature 'acton': did you mean 'action'"),
        ({"delta_timestamps": {"action": []}}, "must be finite seconds, at least one"),
        ({"delta_timestamps": {"action": 0.1}}, "must be a list of seconds"),
        ({"delta_timestamps": {"action": [np.inf]}}, "must be finite seconds"),
        ({"delta_timestamps": [0.1]}, "must map features to lists of seconds"),
        ({"delta_timestamps": {"action": [0.0]}, "fields": ["index"]}, "unknown feature 'action'; features are index"),
        ({"episodes": []}, "must name at least one episode"),
        ({"episodes": 3}, r"episodes must be numbers of episodes, such as range\(40\), got 3"),
        ({"episodes": [0.5]}, "each of episodes must be a whole number"),
        ({"tolerance_s": 0}, r"tolerance_s must be seconds above 0, got 0"),
        ({"tolerance_s": True}, "tolerance_s must be seconds above 0"),
        ({"tolerance_s": "1"}, "tolerance_s must be seconds above 0"),
        ({"fields": "action"}, "fields must be names of features"),
        ({"drop_last_frames": -1}, "drop_last_frames must be 0 or more"),
        ({"uint8": "yes"}, "uint8 must be True or False"),
        ({"transform": 3}, "transform must be a function"),
    ],
)
def test_invalid_argument_is_unusable(tmp_path, options, says):
    with pytest.raises(Unusable, match=says):
        ps.LeRobotDataset(put_robot(tmp_path, robot()), **options)


def test_whole_seconds_in_a_row_are_taken_with_a_line_in_the_log(caplog):
    assert check_deltas({"action": [-1, 0]}, {"action": None}, 10, 1e-4)["action"].tolist() == [-10, 0]
    assert not caplog.messages
    assert check_deltas({"action": range(4)}, {"action": None}, 10, 1e-4)["action"].tolist() == [0, 10, 20, 30]
    assert caplog.messages == [
        "delta_timestamps['action'] are seconds, 0 to 3 of them: if rows are meant, divide by fps=10"
    ]
