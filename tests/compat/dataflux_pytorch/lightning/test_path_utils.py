from __future__ import annotations

from pathlib import Path

import pytest

from penstock.compat.dataflux_pytorch.lightning.path_utils import gcs_url, parse_gcs_path, process_input_path
from penstock.errors import InvalidURL


@pytest.mark.parametrize("scheme", ["gs", "gcs"])
def test_paths_are_urls_also_after_pathlib(scheme):
    assert gcs_url(f"{scheme}://bucket/a/b") == gcs_url(Path(f"{scheme}://bucket/a/b")) == f"{scheme}://bucket/a/b"
    assert process_input_path(Path(f"{scheme}://bucket/a/b")) == f"{scheme}://bucket/a/b"
    assert (
        parse_gcs_path(Path(f"{scheme}://bucket/a/b")) == parse_gcs_path(f"{scheme}://bucket/a/b") == ("bucket", "a/b")
    )
    assert parse_gcs_path(f"{scheme}://bucket") == ("bucket", "")


@pytest.mark.parametrize("call", [gcs_url, parse_gcs_path])
def test_other_paths_are_value_errors(call):
    for path in ("", "bucket/a", "s3://bucket/a", "gs://", Path("/a")):
        with pytest.raises(ValueError, match=r"gs://|bucket") as caught:
            call(path)
        assert isinstance(caught.value, InvalidURL)
    with pytest.raises(TypeError, match="int"):
        call(3)
