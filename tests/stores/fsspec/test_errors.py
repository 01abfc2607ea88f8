"""Errors of filesystems, by class and number, and without secrets."""

import errno

import pytest

from penstock.errors import (
    AlreadyExists,
    Forbidden,
    NoSpace,
    NotFound,
    TimedOut,
    Transient,
    Unreachable,
    Unsupported,
    Unusable,
)
from penstock.stores.fsspec.driver import translate_error


class AuthFailed(Exception):
    pass


class ReadTimeout(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), NotFound),
        (IsADirectoryError("x"), NotFound),
        (FileExistsError("x"), AlreadyExists),
        (PermissionError("x"), Forbidden),
        (TimeoutError(), TimedOut),
        (ConnectionResetError(), Unreachable),
        (OSError(errno.EHOSTUNREACH, "x"), Unreachable),
        (EOFError(), Unreachable),
        (NotImplementedError(), Unsupported),
        (OSError(errno.ENOSPC, "x"), NoSpace),
        (OSError(errno.EROFS, "x"), Unusable),
        (OSError("something"), Transient),
        (ValueError("x"), Unusable),
        (KeyError("x"), Unusable),
        (AuthFailed(), Forbidden),
        (ReadTimeout(), TimedOut),
        (Exception("who knows"), Transient),
    ],
)
def test_exception_type_selects_the_translated_error(error, kind):
    found = translate_error(error, "read", "fsspec+x://k")
    assert type(found) is kind
    assert (found.url, found.__cause__) == ("fsspec+x://k", error)
    assert "cannot read" in str(found)


def test_penstocks_own_errors_stay():
    error = NotFound("gone")
    assert translate_error(error, "read", "u") is error
    assert error.url == "u"


def test_a_cause_with_a_secret_in_it_is_left_out():
    assert translate_error(OSError("login with hush-hush"), "read", "u", ["hush-hush"]).__cause__ is None


def test_a_server_that_cannot_be_reached_is_not_a_missing_file():
    error = FileNotFoundError("x")
    error.__cause__ = ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    assert type(translate_error(error, "read", "u")) is Unreachable
    error.__cause__ = FileNotFoundError("x")
    assert type(translate_error(error, "read", "u")) is NotFound
