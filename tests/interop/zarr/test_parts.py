"""A copy of arrays in parts has the bytes of one that a single process makes, after any stop."""

import numpy as np
import pytest
import zarr

import penstock as ps
from penstock.errors import AlreadyExists, ChecksumMismatch, StateMismatch, Unusable
from penstock.interop.zarr import Store, copy, parts, rechunk

SHAPE, FORM = (24, 8), {"chunks": {"time": 1}, "shards": {"time": 2}}


@pytest.fixture
def source(tmp_path, monkeypatch):
    """Return a group of two arrays whose copy has 14 regions, in parts of three."""
    monkeypatch.setattr(parts, "_PART_REGIONS", 3)
    monkeypatch.setattr(rechunk, "_WORTHWHILE_BYTES", 0)
    url = f"{tmp_path}/from.zarr"
    group = zarr.open_group(Store(url), mode="w", attributes={"title": "x"})
    for name, size in (("a", 24), ("b", 4)):
        array = group.create_array(name, shape=(size, 8), chunks=(2, 8), dtype="f4", dimension_names=("time", "x"))
        array[:] = np.arange(size * 8).reshape(size, 8)
    return url


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def alone(source, tmp_path):
    copy(source, f"{tmp_path}/alone.zarr", **FORM)
    return files(tmp_path / "alone.zarr")


def test_the_copy_has_the_bytes_of_a_single_process(source, tmp_path):
    done = copy(source, f"{tmp_path}/to.zarr", job=tmp_path / "job", **FORM)
    assert (done.complete, done.regions, done.size_bytes) == (True, 14, 28 * 8 * 4)
    assert files(tmp_path / "to.zarr") == alone(source, tmp_path)
    assert len([*(tmp_path / "job" / "done").rglob("*.json")]) == 5
    assert copy(source, f"{tmp_path}/to.zarr", job=tmp_path / "job", **FORM).complete


def test_shares_make_the_copy_together_and_show_nothing_before(source, tmp_path):
    job, to = tmp_path / "job", tmp_path / "to.zarr"
    first = copy(source, f"{to}/", job=job, part="2/2", **FORM)
    assert (first.complete, first.size_bytes) == (False, 6 * 2 * 8 * 4)
    assert not [path for path in files(to) if path.name == "zarr.json"]
    assert copy(f"{source}/", to, job=job, part="1/2", **FORM).complete
    assert files(to) == alone(source, tmp_path)


def test_a_region_that_fails_is_copied_again_with_its_part_only(source, tmp_path, monkeypatch):
    job, to, equal = tmp_path / "job", tmp_path / "to.zarr", rechunk._equal
    monkeypatch.setattr(rechunk, "_equal", lambda values, found: values.flat[0] != 16 * 8 and equal(values, found))
    with pytest.raises(ChecksumMismatch, match="does not match the written data"):
        copy(source, to, job=job, **FORM)
    assert len([*(job / "done").rglob("*.json")]) == 4
    monkeypatch.setattr(rechunk, "_equal", equal)
    seen, copied = [], rechunk._copy
    monkeypatch.setattr(rechunk, "_copy", lambda *given: seen.append(given[2].number) or copied(*given))
    assert copy(source, to, job=job, **FORM).complete
    assert sorted(seen) == [6, 7, 8]
    assert files(to) == alone(source, tmp_path)


def test_a_source_that_changes_after_the_plan_is_refused(source, tmp_path):
    copy(source, tmp_path / "to.zarr", job=tmp_path / "job", part="1/2", **FORM)
    zarr.open_group(Store(source), mode="a").attrs["title"] = "other"
    with pytest.raises(StateMismatch, match="the source was written since"):
        copy(source, tmp_path / "to.zarr", job=tmp_path / "job", **FORM)


def test_values_that_are_written_anew_between_the_parts_are_refused(source, tmp_path):
    copy(source, tmp_path / "to.zarr", job=tmp_path / "job", part="1/2", **FORM)
    zarr.open_group(Store(source), mode="a")["a"][:] = 7
    with pytest.raises(StateMismatch, match="the source was written since"):
        copy(source, tmp_path / "to.zarr", job=tmp_path / "job", **FORM)
    assert not [path for path in files(tmp_path / "to.zarr") if path.name == "zarr.json"]


def test_values_that_are_written_during_the_last_part_are_refused(source, tmp_path, monkeypatch):
    copied = rechunk._copy

    def rewrite(*given):
        zarr.open_group(Store(source), mode="a")["a"][:2] = given[2].number
        copied(*given)

    monkeypatch.setattr(rechunk, "_copy", rewrite)
    with pytest.raises(StateMismatch, match="the source was written since"):
        copy(source, tmp_path / "to.zarr", job=tmp_path / "job", **FORM)
    assert not [path for path in files(tmp_path / "to.zarr") if path.name == "zarr.json"]


def test_a_finished_job_is_not_that_of_a_source_that_was_written_since(source, tmp_path):
    assert copy(source, tmp_path / "to.zarr", job=tmp_path / "job", **FORM).complete
    zarr.open_group(Store(source), mode="a")["a"][:] = 5
    with pytest.raises(StateMismatch, match="the source was written since"):
        copy(source, tmp_path / "to.zarr", job=tmp_path / "job", **FORM)


def test_a_second_planner_takes_the_plan_of_the_first_that_writes_already(source, tmp_path, monkeypatch):
    job, to, check = tmp_path / "job", tmp_path / "to.zarr", rechunk.Journal.check_empty

    def later(run):
        monkeypatch.setattr(rechunk.Journal, "check_empty", check)
        copy(source, to, job=job, part="1/2", **FORM)
        check(run)

    monkeypatch.setattr(rechunk.Journal, "check_empty", later)
    assert copy(source, to, job=job, **FORM).complete
    assert files(to) == alone(source, tmp_path)


class TestRefusals:
    def test_arguments_that_do_not_fit(self, source, tmp_path):
        to, job = tmp_path / "to.zarr", tmp_path / "job"
        for given, options, told in (
            (source, {"part": "1/2"}, "pass job="),
            (source, {"on": ps.Ray()}, "pass job="),
            (source, {"job": job, "overwrite": True}, "overwrite= is for a copy without job="),
            (source, {"job": job, "chunks": {"time": object()}}, "numbers, texts"),
            (source, {"job": to / "job"}, "overlap"),
            (zarr.open_group(Store(source), mode="r"), {"job": job}, "must be a URL where job="),
        ):
            with pytest.raises(Unusable, match=told):
                copy(given, to, **options)
        assert not job.exists()

    def test_a_destination_with_something_in_it(self, source, tmp_path):
        (tmp_path / "to.zarr").mkdir()
        (tmp_path / "to.zarr" / "x").write_text("x")
        with pytest.raises(AlreadyExists, match="destination is not empty"):
            copy(source, tmp_path / "to.zarr", job=tmp_path / "job", **FORM)
        assert not (tmp_path / "job" / "plan.json").exists()
