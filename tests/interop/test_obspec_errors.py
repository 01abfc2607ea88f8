"""Errors keep what they say under the names that obspec knows."""

import pytest
from obspec.exceptions import BaseError, map_exception

from penstock.errors import Bug, Changed, Forbidden, NotFound, PenstockError, Throttled, Unauthenticated
from penstock.interop.obspec import convert_error, rename_errors


def test_error_renamed_for_obspec_keeps_its_message_and_attributes():
    error = NotFound("not there", url="s3://bucket/a", attempts=3, elapsed_s=1.5)
    error.code = "NoSuchKey"
    other = convert_error(error)
    assert (str(other), other.code, isinstance(other, NotFound), convert_error(other)) == (
        str(error),
        "NoSuchKey",
        True,
        other,
    )
    assert isinstance(map_exception(other), BaseError)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(Changed, "PreconditionError"), (Forbidden, "PermissionDeniedError"), (Unauthenticated, "UnauthenticatedError")],
)
def test_names(kind, name):
    with pytest.raises(PenstockError) as caught, rename_errors():
        raise kind("x")
    assert type(map_exception(caught.value)).__name__ == name
    assert type(caught.value.__cause__) is kind


@pytest.mark.parametrize("kind", [Throttled, Bug, KeyboardInterrupt])
def test_exception_without_obspec_name_keeps_its_type(kind):
    with pytest.raises(kind) as caught, rename_errors():
        raise kind("x")
    assert type(caught.value) is kind
