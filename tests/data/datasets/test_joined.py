"""Datasets by the numbers of their samples: each number is one sample of one part, and repeats stay repeats."""

import pytest

import penstock as ps
from penstock.data.datasets.joined import JoinedDataset, JointContents
from penstock.data.reading.reading import in_lists
from penstock.errors import Unusable
from tests.data.shards.archives import tar


@pytest.fixture
def parts(tmp_path):
    for name, count in (("a", 3), ("b", 0), ("c", 2)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"{number}").write_bytes(b"x" * (number + 1))
    return [ps.MapDataset.from_prefix(f"{tmp_path}/{name}/", allow_empty=True) for name in "abc"]


@pytest.fixture
def joined(parts):
    dataset = JoinedDataset()
    dataset.join(parts, [3, 0, 2])
    return dataset


def test_every_number_is_a_sample_of_one_part(joined):
    assert joined.split(range(5)) == ([0, 0, 0, 2, 2], [0, 1, 2, 0, 1])
    assert [joined.url_of(index).rpartition("/")[0][-1] for index in range(5)] == ["a", "a", "a", "c", "c"]


def test_repeats_stay_repeats(joined):
    numbers, indices = joined.split([4, ps.order.Repeat(3), ps.order.Repeat(0)])
    assert (numbers, indices) == ([2, 2, 0], [1, 0, 0])
    assert [isinstance(index, ps.order.Repeat) for index in indices] == [False, True, True]


def test_reads_are_those_of_each_part_in_turn(joined):
    found = [[span.key[-1] for span in spans] for _, spans in joined.reads(lambda: [[0, 4], [2]])]
    assert found == [["0", "2"], [], ["1"]]
    assert len([*joined.spans()[1]]) == 5


def test_spans_of_several_stores_are_refused(parts):
    with ps.open("memory://other/x", "wb") as file:
        file.write(b"x")
    dataset = JoinedDataset()
    dataset.join([parts[0], ps.MapDataset.from_prefix("memory://other/")], [3, 1])
    with pytest.raises(Unusable, match="several stores"):
        dataset.spans()


def test_contents_tell_the_parts_and_their_order_apart(parts):
    first, _, last = (each.contents for each in parts)
    digests = {JointContents(each).digest for each in ([first, last], [last, first], [first], [first, first])}
    assert len(digests) == 4
    assert len(JointContents([first, last])) == 5


def test_objects_of_one_store_are_read_together_and_others_by_themselves(parts, tmp_path):
    with ps.open("memory://other/x", "wb") as file:
        file.write(b"y")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "0.tar").write_bytes(tar([("0.bin", b"z"), ("1.bin", b"z")]))
    shards = ps.MapDataset.from_shards(f"{tmp_path}/d/")
    others = [ps.MapDataset.from_prefix("memory://other/"), ps.MapDataset.from_prefix(f"{tmp_path}/c/")]
    dataset = JoinedDataset()
    dataset.join([parts[0], others[0], shards, others[1], shards.ordered(ps.order.Lanes(2))], [3, 1, 2, 2, 2])
    # Of shards that are read by ranges, too: each sample is a request of its own, as an object is.
    assert [each.numbers for each in dataset.members({})] == [(0, 2, 3), (1,), (4,)]
    alone = dataset.members({3: dataset.parts[3].reading})
    assert [each.numbers for each in alone] == [(0, 2), (1,), (3,), (4,)]


def test_joint_samples_are_those_of_the_parts_wherever_they_lie(parts):
    dataset = JoinedDataset()
    dataset.join([part[:] for part in parts], [3, 0, 2])
    reading = dataset.reading([[4, 0, 2], [1, 3], [0]], 1)
    assert [[sample.size for sample in batch] for batch in in_lists(reading)] == [[2, 1, 3], [2, 1], [1]]
    assert (reading.counts.requests, reading.counts.size_bytes) == (6, 10)
