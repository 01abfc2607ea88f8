"""Options of Alibaba OSS refuse halves and contradictions, and show no secret."""

import pytest

from penstock.errors import ConfigError
from penstock.stores.oss.options import OSSOptions


@pytest.mark.parametrize(
    "options",
    [
        {"access_key": "a"},
        {"secret_key": "s"},
        {"session_token": "t"},
        {"anonymous": True, "access_key": "a", "secret_key": "s"},
        {"credentials_file": "f", "ecs_role": "r"},
        {"credentials": dict, "credentials_process": "p"},
        {"internal": True, "endpoint": "https://h"},
    ],
)
def test_halves_and_contradictions_are_refused(options):
    with pytest.raises(ConfigError, match=r"together|contradict|needs|leave out|selects"):
        OSSOptions(**options)


def test_no_secret_is_shown():
    shown = repr(OSSOptions(access_key="k3y", secret_key="s3cret", session_token="t0ken", region="cn-beijing"))
    assert not any(secret in shown for secret in ("k3y", "s3cret", "t0ken"))
    assert "cn-beijing" in shown
