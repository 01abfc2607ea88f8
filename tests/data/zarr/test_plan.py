"""Plans: what a process would read, formulas by hand, advice, and how plans and pictures of chunks are shown."""

from __future__ import annotations

import json
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from penstock.data.zarr.plan import (
    Figures,
    Simulated,
    TrainingSetting,
    make_plan,
    picture,
    render_picture,
    simulate_reads,
    svg,
)
from penstock.errors import Unusable

FIGURES = Figures(
    samples=1000,
    batches=32,
    sample_bytes=1000,
    chunk_bytes=4000.0,
    stored_bytes=1_000_000.0,
    decode_s=0.002,
    indexes=10,
    index_bytes=100,
    kept=0,
    kept_stored_bytes=0.0,
    kept_bytes=5000,
    in_flight=50,
    url="s3://bucket/a/",
    joined=(),
    aligned=(),
    normalized=(),
    wish="--chunks 1,8",
)
DRAWN = [picture("a", ("time",), (4,), [(1,)])]
RUN = Simulated(samples=1000, chunks=[*range(250)], first=60, touched=(0, 1), held_bytes=8000)


def plan(setting=None, runs=(RUN,), *, sharded=True, **changed):
    return make_plan(setting or TrainingSetting(32), FIGURES._replace(**changed), runs, DRAWN, sharded=sharded)


def test_the_formulas_by_hand():
    found = plan(TrainingSetting(32, 1, 0, 0.03, 1e9, 2))
    assert (found.reads, found.chunks, found.amplification) == (250, 250, 1)
    assert found.requests == 250 + 10
    assert found.read_bytes == 250 * 1_000_000 + 10 * 100
    assert found.waste == (250 * 4000 + 5000) / (1000 * 1000)
    assert found.memory_bytes == 8000 + 50 * 1_000_000 + 4 * 32 * 1000 + 5000
    assert found.first_batch_s == pytest.approx((2 + 1) * 0.03 + 60 * (0.001 + 0.001))
    needs = 0.25
    assert found.samples_per_s == pytest.approx(1 / (needs * 0.001))  # bandwidth, decoding alike; latency: 0.0006
    assert found.epoch_s == pytest.approx(0.25)


def test_plan_names_the_limiting_factor():
    assert plan(TrainingSetting(32, latency_s=10.0)).limit == "latency"
    assert plan(TrainingSetting(32, bandwidth=1e6)).limit == "bandwidth"
    slow = plan(decode_s=1.0)
    assert slow.limit == "decoding"
    assert any("blosc-lz4" in each for each in slow.advice)


def test_ranks_and_workers_add_up():
    runs = [RUN._replace(samples=500), RUN._replace(samples=500)]
    found = plan(TrainingSetting(32, ranks=2, workers=0, bandwidth=1e9), runs)
    assert (found.reads, found.chunks, found.amplification) == (500, 250, 2)
    assert found.requests == 500 + 2 * 10
    assert any("lanes" in each for each in found.advice)
    workers = plan(TrainingSetting(32, workers=2), runs)
    assert any("num_workers=0" in each for each in workers.advice)


def test_arrays_that_are_kept_are_read_once_by_each_process():
    found = plan(TrainingSetting(32, ranks=2), kept=4, kept_stored_bytes=50.0)
    assert (found.reads, found.chunks, found.requests) == (250 + 8, 254, 258 + 20)
    assert found.read_bytes == 250 * 1_000_000 + 2 * 4 * 50 + 2 * 10 * 100


def test_kept_arrays_cause_no_advice_about_order_or_chunks():
    found = plan(TrainingSetting(32, ranks=4), runs=(RUN._replace(chunks=[]),), kept=4, kept_bytes=1_000_000)
    assert (found.amplification, found.waste) == (4, 4)
    assert not [each for each in found.advice if "each chunk is read" in each or "smaller chunks" in each]


def test_a_part_that_was_followed_stands_for_the_whole():
    found = plan(runs=[RUN._replace(samples=100)])
    assert (found.reads, found.chunks) == (2500, 2500)


def test_waste_is_advised_against_with_the_line_to_run():
    found = plan(chunk_bytes=40_000.0)
    assert any("penstock zarr copy s3://bucket/a DEST --chunks 1,8" in each for each in found.advice)
    assert not any("zarr copy s3" in each for each in plan(chunk_bytes=4000.0).advice)
    joined = plan(chunk_bytes=40_000.0, joined=("time: 2 stores of 9",))
    assert any(each.endswith(", and the other stores likewise") for each in joined.advice)
    assert "joined       time: 2 stores of 9" in repr(joined)


def test_a_plan_is_text_json_and_a_page():
    found = plan()
    assert "amplification 1" in repr(found)
    assert "·█··" in repr(found)
    record = json.loads(json.dumps(found.as_record()))
    assert (record["requests"], record["batch"]) == (260, 32)
    page = found.to_html()
    assert "<svg" in page
    assert "src=" not in page
    assert page.count("http") == page.count('xmlns="http://www.w3.org/2000/svg"')
    assert plan(samples=0, runs=()).reads == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"ranks": 0}, "ranks must be 1 or more"),
        ({"ranks": "4"}, "ranks must be a whole number"),
        ({"workers": -1}, "workers must be 0 or more"),
        ({"threads": 0}, "threads must be 1 or more"),
        ({"latency_s": -1}, "latency_s must be seconds, 0 or more"),
        ({"latency_s": "30 ms"}, "latency_s must be seconds"),
        ({"bandwidth": 0}, "bandwidth must be bytes per second, more than 0"),
        ({"bandwidth": float("nan")}, "bandwidth must be bytes per second"),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused(wrong, words):
    with pytest.raises(Unusable, match=words):
        TrainingSetting(32, **wrong)


def test_two_dimensions_are_rows_and_columns_the_longer_one_across():
    drawn = picture("t2m", ("time", "lat", "lon"), (4, 2, 1), [(0, 0, 0), (3, 1, 0)])
    assert render_picture(drawn).splitlines() == ["t2m: lat down, time across", "█···", "···█"]


def test_picture_wraps_one_dimension_and_groups_many_chunks_per_cell():
    drawn = picture("", ("time",), (70,), [(0,), (69,)])
    lines = render_picture(drawn).splitlines()
    assert lines[0] == "the array: time, row by row"
    assert [len(line.rstrip()) for line in lines[1:]] == [64, 6]
    assert (lines[1][0], lines[2][5]) == ("█", "█")
    many = picture("", ("time",), (100_000,), [(99_999,)])
    assert many.cells.shape == (24, 64)
    assert many.cells.max() == 1
    assert "(a cell is 66 chunks)" in render_picture(many)
    wide = picture("", ("y", "x"), (1000, 3000), [(999, 2999)])
    assert wide.cells[-1, -1] == 1


def test_arrays_of_one_chunk_and_of_no_dimensions():
    assert render_picture(picture("a", ("x",), (1,), [(0,)])).splitlines()[1] == "█"
    assert render_picture(picture("a", (), (), [()])).splitlines()[1] == "█"


def test_the_svg_is_well_formed_and_names_are_escaped():
    found = ET.fromstring(svg(picture("<a&b>", ("y", "x"), (2, 3), [(1, 2)])))  # noqa: S314  our own
    rects = [each for each in found if each.tag.endswith("rect")]
    assert len(rects) == 6
    assert len({each.get("fill") for each in rects}) == 2
    assert "<a&b>" in "".join(found.itertext())


def follow(batches, *, most_bytes=1 << 40, most=1 << 40, per_chunk=4):
    return simulate_reads(
        batches, lambda samples: (samples // per_chunk)[:, None], lambda _: 10, (most_bytes, 1 << 20), most
    )


def test_chunks_are_read_in_the_order_of_their_first_use():
    found = follow([[9, 8, 0], [1, 2, 10]])
    assert found.chunks == [2, 0]
    assert (found.samples, found.first, found.touched) == (6, 2, (2, 0))
    assert found.held_bytes == 20


def test_too_little_memory_costs_reads():
    jumping = [[at % 4 * 4 + at // 4] for at in range(16)]
    assert len(follow(jumping).chunks) == 4
    assert len(follow(jumping, most_bytes=10).chunks) == 16


def test_simulation_stops_at_the_requested_sample_limit():
    found = follow([[sample] for sample in range(1000)], most=100)
    assert (found.samples, len(found.chunks)) == (100, 25)
    empty = follow([])
    assert empty == (0, [], 0, (), 0)
    assert np.asarray(empty.touched).size == 0
