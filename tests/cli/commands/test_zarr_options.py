"""``penstock zarr``: its options, its help, and what it refuses."""

from __future__ import annotations

import numpy as np
import zarr


def test_the_help_has_an_example_and_wrong_options_are_one_line(penstock, tmp_path):
    shown = penstock("zarr", "copy", "--help")
    assert shown.returncode == 0
    assert "--chunks" in shown.stdout
    assert "penstock zarr copy" in shown.stdout
    for words, said in ((("--chunks", "1,x"), "write 1,180,360"), (("--resume", "--overwrite"), "pass one of them")):
        done = penstock("zarr", "copy", str(tmp_path), str(tmp_path / "b"), *words)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert said in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_aligned_plan_reports_the_common_coordinates(penstock, tmp_path):
    for name, times in (("a", range(10)), ("b", range(4, 20, 2))):
        for of, values in ((name, [[each] for each in times]), ("time", [*times])):
            zarr.create_array(
                str(tmp_path / f"{name}.zarr" / of),
                data=np.array(values),
                dimension_names=("time", "x")[: 1 + (of == name)],
            )
    where = (str(tmp_path / "a.zarr" / "a"), "--targets", str(tmp_path / "b.zarr" / "b"))
    done = penstock("zarr", "plan", *where, "--align", "coordinates", "--batch", "1")
    assert done.returncode == 0, done.stderr
    assert "time: 3 common coordinates of 10 (0 to 9), 8 (4 to 18)" in done.stdout
    done = penstock("zarr", "plan", *where, "--align", "time")
    assert (done.returncode, done.stdout) == (2, "")
    assert "align must be 'index' or 'coordinates'" in done.stderr


def test_plan_of_stores_joined_along_a_dimension(penstock, tmp_path):
    for number in range(3):
        values = np.zeros((4 + number, 2), "f4")
        zarr.create_array(str(tmp_path / f"{number}.zarr" / "a"), data=values, dimension_names=("time", "x"))
    done = penstock("zarr", "plan", str(tmp_path / "*.zarr" / "a"), "--along", "time", "--batch", "1")
    assert done.returncode == 0, done.stderr
    assert "time: 3 stores of 4 to 6" in done.stdout
    assert done.stdout.startswith("samples      15,")
