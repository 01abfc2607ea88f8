"""Options name one source of credentials, and one that can be one."""

import pytest

import penstock as ps
from penstock.errors import ConfigError


def function():
    return ps.credentials.Credentials("AKIA", "hush")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"anonymous": True, "credentials": function}, "anonymous=True and credentials contradict one another"),
        ({"credentials": function, "credentials_process": "x"}, "credentials and credentials_process contradict"),
        ({"access_key": "a", "secret_key": "b", "credentials_process": "x"}, "access_key and credentials_process"),
        ({"credentials": "AKIA"}, "credentials must be a function that returns credentials, got a str"),
        ({"credentials_process": ""}, "credentials_process is a command"),
        ({"credentials_process": ()}, "a tuple of a program and its arguments"),
        ({"credentials_process": ("x", 3)}, "a tuple of a program and its arguments"),
        ({"credentials_process": ["x"]}, "a tuple of a program and its arguments"),
    ],
)
def test_two_sources_or_none_that_can_be_one_are_refused(options, says):
    with pytest.raises(ConfigError) as refused:
        ps.S3Options(**options)
    assert says in str(refused.value)


def test_credential_source_is_accepted_beside_an_aws_profile():
    assert ps.S3Options(credentials=function, profile="minio").credentials is function
    assert ps.S3Options(anonymous=True, profile="minio").anonymous
    assert "hush" not in repr(ps.S3Options(credentials_process=("x", "--password=hush")))


class Unhashable:
    """A source of credentials that is compared by what it holds, as a dataclass is."""

    __hash__ = None

    def __eq__(self, other):
        return isinstance(other, Unhashable)

    def __call__(self):
        return ps.credentials.Credentials("AKIA", "hush")


@pytest.mark.parametrize(
    "kind",
    [
        lambda source: ps.S3Options(credentials=source),
        lambda source: ps.GCSOptions(credentials=source),
        lambda source: ps.OSSOptions(credentials=source),
        lambda source: ps.AzureOptions(credential=source),
    ],
    ids=["s3", "gcs", "oss", "azure"],
)
def test_a_source_that_cannot_be_hashed_is_one(kind):
    assert hash(kind(Unhashable())) == hash(kind(Unhashable()))
    assert kind(Unhashable()) != kind(function)
