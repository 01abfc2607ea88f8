"""Items of LeRobot datasets are those of their rows and whole videos, in every order, on ranks, after resumptions."""

import io
import itertools
import pickle
import re

import av
import numpy as np
import pytest
import torch

import penstock as ps
from penstock.errors import Changed, Damaged, StateMismatch, Unusable
from penstock.testing.faults import FaultServer
from penstock.testing.restarts import check_restarts
from tests.data.lerobot.written import (
    DATA,
    FPS,
    LENGTHS,
    TASKS,
    TOP,
    VIDEOS,
    WRIST,
    number_in,
    put_robot,
    robot,
    rows_of,
)
from tests.data.reads import spans_of

COUNT = sum(LENGTHS)
DELTAS = {TOP: [-0.1, 0.0], WRIST: [0.3], "action": [0.0, 0.1, 0.2], "observation.state": [-0.2], "matrix": [-0.1, 0.1]}
ORDERS = {
    "catalog": False,
    "full": True,
    "blocks": ps.order.BlockShuffle(block_bytes=2_000, window_blocks=2),
    "lanes": ps.order.Lanes(block_bytes=2_000, window_blocks=2),
    "by-number": ps.order.BlockShuffle(4, 2),
    "lanes-in-order": ps.order.Lanes(5, shuffle=False),
    "defaults": ps.order.Lanes(),
}


@pytest.fixture(scope="module")
def files():
    return robot()


@pytest.fixture(scope="module")
def folder(tmp_path_factory, files):
    return put_robot(tmp_path_factory.mktemp("robot"), files)


@pytest.fixture(scope="module")
def expected(files):
    """Return a function from a row and deltas to the item that LeRobot defines, from whole videos and tables."""
    columns = rows_of(LENGTHS)
    columns["force"] = columns["force"].astype(np.float32)
    columns["matrix"] = columns["matrix"].astype(np.int64)
    ends = np.cumsum(LENGTHS)
    frames = {key: {} for key in VIDEOS}
    for key, groups in VIDEOS.items():
        for file, group in enumerate(groups):
            with av.open(io.BytesIO(files[f"videos/{key}/chunk-000/file-{file:03}.mp4"])) as opened:
                pictures = [each.to_ndarray(format="rgb24") for each in opened.decode(video=0)]
            rows = [row for one in group for row in range(ends[one] - LENGTHS[one], ends[one])]
            frames[key].update(zip(rows, pictures, strict=True))

    def make(row, deltas):
        episode = int(np.searchsorted(ends, row, side="right"))
        first, stop = ends[episode] - LENGTHS[episode], ends[episode]
        item = {"task": TASKS[episode % 2]}
        for key in (*columns, *frames):
            wanted = [row + round(each * FPS) for each in deltas.get(key, [0.0])]
            kept = [min(max(each, first), stop - 1) for each in wanted]
            if key in frames:
                values = torch.stack([torch.from_numpy(frames[key][each]).permute(2, 0, 1) for each in kept])
                item[key] = (values / 255.0).squeeze(0)
            else:
                values = torch.from_numpy(columns[key][kept])
                item[key] = values if key in deltas else values[0]
            if key in deltas:
                item[f"{key}_is_pad"] = torch.tensor([not first <= each < stop for each in wanted])
        return item

    return make


def assert_same(item, other):
    assert item.keys() == other.keys()
    for key, value in other.items():
        if isinstance(value, str):
            assert item[key] == value
        else:
            assert (item[key].dtype, item[key].shape) == (value.dtype, value.shape), key
            assert torch.equal(item[key], value), key


@pytest.mark.parametrize("deltas", [{}, DELTAS], ids=["present", "deltas"])
def test_items_are_those_of_whole_videos_and_tables(folder, expected, deltas):
    dataset = ps.LeRobotDataset(folder, delta_timestamps=deltas)
    assert len(dataset) == COUNT
    for row, item in enumerate(dataset):
        assert_same(item, expected(row, deltas))
    for row in (0, 6, 7, -1, np.int64(20)):
        assert_same(dataset[row], expected(row % COUNT, deltas))
    with pytest.raises(IndexError, match="does not exist"):
        dataset[COUNT]


def test_description_is_that_of_the_files(folder):
    dataset = ps.LeRobotDataset(str(folder))
    assert dataset.info["robot_type"] == "sim"
    assert dataset.fps == FPS
    assert dataset.tasks == TASKS
    assert dataset.episodes == [0, 1, 2, 3, 4]
    assert dataset.stats["action"]["mean"].tolist() == [0.5, 0.25]
    assert repr(dataset) == f"<LeRobotDataset of 31 samples in 5 episodes at 10 fps; 2 cameras: {TOP}, {WRIST}>"
    assert dataset.url_of(7).endswith(f"{TOP}/chunk-000/file-000.mp4")


def test_episodes_are_splits_that_read_only_their_files(folder, files, expected, tmp_path):
    dataset = ps.LeRobotDataset(folder, episodes=[3, 2], delta_timestamps=DELTAS)
    assert dataset.episodes == [2, 3]
    for item, row in zip(dataset, range(12, 25), strict=True):
        assert_same(item, expected(row, DELTAS))
    # Without the videos of other episodes, and the rows of none.
    kept = {name: body for name, body in files.items() if f"{TOP}/chunk-000/file-000" not in name}
    kept = {name: body for name, body in kept.items() if f"{WRIST}/chunk-000/file-000" not in name}
    assert len(ps.LeRobotDataset(put_robot(tmp_path, kept), episodes=[2, 3])) == 13
    with pytest.raises(Unusable, match=r"episodes: unknown episode 5; the dataset has 5, from 0 to 4"):
        ps.LeRobotDataset(folder, episodes=range(8))


def test_last_frames_are_dropped_from_samples_but_not_from_deltas(folder, expected):
    dataset = ps.LeRobotDataset(folder, delta_timestamps=DELTAS, drop_last_frames=4)
    ends = np.cumsum(LENGTHS)
    rows = [row for end, length in zip(ends, LENGTHS, strict=True) for row in range(end - length, max(end - 4, 0))]
    rows = [row for row in rows if not any(end - 4 <= row < end for end in ends)]
    assert [int(item["index"]) for item in dataset] == rows
    for item, row in zip(dataset, rows, strict=True):
        assert_same(item, expected(row, DELTAS))
    with pytest.raises(Unusable, match="drop_last_frames must leave some row of an episode, got 9"):
        ps.LeRobotDataset(folder, drop_last_frames=9)


def test_fields_choose_features_and_cameras(folder, files, expected, tmp_path):
    dataset = ps.LeRobotDataset(folder, fields=[WRIST, "action", "task"], uint8=True)
    item, whole = dataset[9], expected(9, {})
    assert item.keys() == {WRIST, "action", "task"}
    assert item[WRIST].dtype == torch.uint8
    assert torch.equal(item[WRIST] / 255.0, whole[WRIST])
    without = {name: body for name, body in files.items() if TOP not in name}
    assert_same(ps.LeRobotDataset(put_robot(tmp_path, without), fields=[WRIST])[9], {WRIST: whole[WRIST]})


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("actions", "unknown feature 'actions': did you mean 'action'"),
        ("observation.images.*", f"did you mean {TOP}, {WRIST}?"),
        ("top", f"unknown feature 'top': did you mean {TOP}?"),
        ("gripper", "unknown feature 'gripper'; features are observation.state, action, matrix"),
    ],
)
def test_unknown_feature_is_refused_with_the_nearest_names(folder, name, says):
    with pytest.raises(Unusable, match=f"fields: .*{re.escape(says)}"):
        ps.LeRobotDataset(folder, fields=["action", name])
    with pytest.raises(Unusable, match=f"delta_timestamps: .*{re.escape(says)}"):
        ps.LeRobotDataset(folder, delta_timestamps={name: [0.0]})


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("workers", [0, 2])
def test_every_sample_comes_once_with_its_frames(folder, order, workers):
    loader = ps.DataLoader(ps.LeRobotDataset(folder), 4, shuffle=order, num_workers=workers)
    batches = [*loader]
    found = [row for batch in batches for row in batch["index"].tolist()]
    assert sorted(found) == [*range(COUNT)]
    assert order is not False or found == [*range(COUNT)]
    for key in (TOP, WRIST):
        assert [number_in(each) for batch in batches for each in batch[key]] == found
    assert [task for batch in batches for task in batch["task"]] == [
        TASKS[int(each) % 2] for batch in batches for each in batch["episode_index"]
    ]


@pytest.mark.parametrize("context", ["spawn", "forkserver"])
def test_workers_of_other_processes_read_the_same(folder, context):
    dataset = ps.LeRobotDataset(folder, delta_timestamps={TOP: [-0.1, 0.0]})
    loader = ps.DataLoader(dataset, 8, shuffle=ps.order.Lanes(), num_workers=1, multiprocessing_context=context)
    here = ps.DataLoader(dataset, 8, shuffle=ps.order.Lanes())
    for batch, other in zip(loader, here, strict=True):
        assert torch.equal(batch[TOP], other[TOP])
    assert len(pickle.loads(pickle.dumps(dataset))) == COUNT


def test_index_is_read_in_place_of_the_videos(files, caplog):
    with FaultServer.within() as server:
        for name, body in files.items():
            server.put("bucket", f"robot/{name}", body)

        def opened(**options):
            """Return a dataset, and how many requests its opening makes to videos, and to others."""
            before = len(server.seen("get"))
            found = ps.LeRobotDataset("s3://bucket/robot", store=server.store, **options)
            keys = [each.key.endswith(".mp4") for each in server.seen("get")[before:]]
            return found, sum(keys), len(keys) - sum(keys)

        index = "s3://bucket/videos.index"
        counts = ps.index("s3://bucket/robot/videos/", index, format="mp4", store=server.store)
        assert counts["files"] == sum(map(len, VIDEOS.values()))
        plain, _, others = opened()
        indexed, videos, more = opened(index=index)
        assert (videos, more) == (0, others + 1)
        assert indexed.contents.digest == plain.contents.digest
        for one, other in zip(indexed, plain, strict=True):
            assert_same(one, other)
        # Of one camera, and of some episodes, by the same index.
        for options in ({"fields": [WRIST]}, {"episodes": [1, 2]}):
            one, videos, _ = opened(index=index, **options)
            assert videos == 0
            assert one.contents.digest == opened(**options)[0].contents.digest
        name = next(name for name in files if name.endswith(".mp4"))
        server.put("bucket", f"robot/{name}", files[name] + b"\0\0\0\x08free")
        assert not caplog.messages
        _, videos, _ = opened(index=index)
        assert videos == 1
        assert "are read now, since the index s3://bucket/videos.index does not have them" in caplog.text


def test_requests_are_one_of_each_camera_and_sample_or_fewer(files):
    with FaultServer.within() as server:
        for name, body in files.items():
            server.put("bucket", f"robot/{name}", body)
        dataset = ps.LeRobotDataset("s3://bucket/robot", store=server.store)
        videos = [each for each in server.seen("get") if each.key.endswith(".mp4")]
        # Small files are in the first request as a whole, wherever their index is.
        assert len(videos) == sum(map(len, VIDEOS.values()))
        assert len(server.seen("list")) == 3
        for order, most in ((True, 2 * COUNT), (ps.order.Lanes(), 2 * 4)):
            loader, before = ps.DataLoader(dataset, 4, shuffle=order), len(server.seen("get"))
            for _ in loader:
                pass
            assert len(server.seen("get")) - before == loader.stats().total.requests == most
        sizes = sum(len(body) for name, body in files.items() if name.endswith(".mp4"))
        assert loader.stats().total.size_bytes < sizes


def test_report_compares_bytes_read_with_those_of_the_frames(folder):
    dataset = ps.LeRobotDataset(folder, fields=[TOP, "index"], delta_timestamps={TOP: [-0.1, 0.0]})
    videos = dataset.contents.videos
    frames = sum(int(videos.table(file).sizes.sum()) for file in range(len(videos)))
    assert dataset.contents.total_bytes == pytest.approx(2 * frames, rel=0.01)
    loader = ps.DataLoader(dataset, 4, shuffle=True)
    for _ in loader:
        pass
    assert loader.report().used_bytes == dataset.contents.total_bytes
    assert ps.LeRobotDataset(folder, fields=["index"]).contents.total_bytes == 0


def test_spans_are_those_that_an_epoch_reads(folder, tmp_path):
    options = ps.StoreOptions(cache=ps.CacheOptions(path=tmp_path / "cache"))
    dataset = ps.LeRobotDataset(folder, store=options)
    for order in ("full", "lanes", "catalog"):
        loader = ps.DataLoader(dataset, 8, shuffle=ORDERS[order], seed=2)
        ps.warm(loader)
        for _ in loader:
            pass
        assert loader.stats().total.requests == 0, order
    assert len(spans_of(dataset, [[0, 1], [0]])) >= 2


@pytest.mark.parametrize("order", ["full", "lanes", "catalog"])
def test_every_restart_goes_on_exactly(folder, order):
    dataset = ps.LeRobotDataset(folder, fields=[TOP, "index"], delta_timestamps={TOP: [0.1]})
    check_restarts(lambda: ps.DataLoader(dataset, 6, shuffle=ORDERS[order], seed=5))


@pytest.mark.parametrize(
    "order", [True, ps.order.Lanes(block_bytes=2_000, window_blocks=2, lanes=2)], ids=["full", "lanes"]
)
def test_each_sample_comes_once_on_one_then_two_then_one_rank(folder, order):
    dataset = ps.LeRobotDataset(folder, fields=[WRIST, "index"])

    def loaders(world, state=None):
        found = [
            ps.DataLoader(dataset, 4 // world, shuffle=order, seed=3, place=ps.Place(rank, world))
            for rank in range(world)
        ]
        for each in found:
            if state is not None:
                each.load_state_dict(state)
        return found

    rows, state = [], None
    for world, stop in ((1, 2), (2, 2), (1, None)):
        parts = loaders(world, state)
        for batches in itertools.islice(zip(*parts, strict=True), stop):
            for batch in batches:
                assert [number_in(each) for each in batch[WRIST]] == batch["index"].tolist()
                rows += batch["index"].tolist()
        state = parts[0].state_dict()
    assert sorted(rows) == [*range(COUNT)]


def test_state_of_other_deltas_episodes_or_files_is_refused(folder, tmp_path):
    def loader(path=folder, **options):
        return ps.DataLoader(ps.LeRobotDataset(path, **options), 4, shuffle=True)

    state = loader().state_dict()
    loader(put_robot(tmp_path / "same", robot())).load_state_dict(state)
    for path, options in (
        (folder, {"delta_timestamps": {"action": [0.1]}}),
        (folder, {"episodes": range(4)}),
        (folder, {"drop_last_frames": 1}),
        (put_robot(tmp_path / "other", robot(g=4)), {}),
    ):
        with pytest.raises(StateMismatch):
            loader(path, **options).load_state_dict(state)
    with pytest.raises(StateMismatch):
        ps.DataLoader(ps.LeRobotDataset(folder)[1:], 4, shuffle=True).load_state_dict(state)


def test_slices_are_datasets_of_neighbours(folder, expected):
    part = ps.LeRobotDataset(folder, delta_timestamps=DELTAS)[5:20][2:]
    assert len(part) == 13
    for order in (False, True, ORDERS["lanes"]):
        batches = [*ps.DataLoader(part, 5, shuffle=order)]
        assert sorted(row for batch in batches for row in batch["index"].tolist()) == [*range(7, 20)]
    assert_same(part[0], expected(7, DELTAS))


def test_datasets_are_mixed(folder, tmp_path):
    other = put_robot(tmp_path, robot((8, 8), videos={TOP: [(0, 1)], WRIST: [(0, 1)]}, data=[(0, 1)]))
    mix = ps.Mix({"a": ps.LeRobotDataset(folder), "b": ps.LeRobotDataset(other)}, ends="longest")
    rows = [row for batch in ps.DataLoader(mix, 4, shuffle=True) for row in batch["index"].tolist()]
    assert {*rows} == {*range(COUNT)}
    with pytest.raises(Unusable, match="LeRobotDataset"):
        ps.concat(ps.LeRobotDataset(folder), ps.LeRobotDataset(other))


def test_dataset_without_cameras_reads_no_videos(tmp_path):
    files = robot(videos={})
    dataset = ps.LeRobotDataset(put_robot(tmp_path, files), delta_timestamps={"action": [0.0, 0.1]})
    for order in (False, True, ps.order.Lanes(), ps.order.Lanes(block_bytes=500)):
        loader = ps.DataLoader(dataset, 4, shuffle=order)
        assert sorted(row for batch in loader for row in batch["index"].tolist()) == [*range(COUNT)]
        assert loader.stats().total.requests == 0
    assert dataset[3]["action"].shape == (2, 2)


def test_replaced_video_is_changed_and_skipped_if_asked(files, tmp_path):
    put_robot(tmp_path, files)
    dataset = ps.LeRobotDataset(tmp_path, fields=[TOP, "index"])
    loader = iter(ps.DataLoader(dataset, 7, shuffle=False))
    next(loader)
    changed = tmp_path / f"videos/{TOP}/chunk-000/file-001.mp4"
    changed.write_bytes(b"\0" + files[f"videos/{TOP}/chunk-000/file-001.mp4"])
    with pytest.raises(Changed, match=r"file-001\.mp4"):
        [*ps.DataLoader(dataset, 7, shuffle=True)]
    with pytest.raises(Changed, match=r"file-001\.mp4"):
        dataset[12]
    skipping = ps.DataLoader(dataset, 16, shuffle=True, on_error="skip")
    assert sorted(row for batch in skipping for row in batch["index"].tolist()) == [*range(12), *range(21, COUNT)]
    assert skipping.skipped_count == LENGTHS[2]


def test_frames_that_do_not_decode_are_damaged_with_the_name_of_the_video(folder, files, tmp_path):
    name = f"videos/{WRIST}/chunk-000/file-001.mp4"
    body = bytearray(files[name])
    table = ps.LeRobotDataset(folder).contents.videos.table(4)
    at = table.place_of(8)
    body[at : at + int(table.sizes[8])] = bytes(int(table.sizes[8]))
    dataset = ps.LeRobotDataset(put_robot(tmp_path, {**files, name: bytes(body)}), fields=[WRIST, "index"])
    with pytest.raises(Damaged, match=r"file-001\.mp4"):
        dataset[7 + 8]
    assert number_in(dataset[7 + 6][WRIST]) == 13
    skipping = ps.DataLoader(dataset, 16, shuffle=True, on_error="skip")
    rows = [row for batch in skipping for row in batch["index"].tolist()]
    assert COUNT - 2 <= len(rows) < COUNT
    assert skipping.skipped_count == COUNT - len(rows)


def test_transform_is_called_with_items(folder):
    dataset = ps.LeRobotDataset(folder, fields=["index"], transform=lambda item: int(item["index"]))
    assert [*dataset] == [*range(COUNT)]
    assert len(DATA) == 2
