"""Google's codes as errors that say what to change; a refused token is renewed."""

import pytest

from penstock.engine.contracts.exchange import Response
from penstock.errors import ConfigError, Forbidden, NotFound, PenstockError, Throttled, Unauthenticated
from penstock.stores.gcs.driver import GOOGLE_CODES


def _refusal(status, code=""):
    body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
    return GOOGLE_CODES.refusal(Response(status, {}, body), "read", "gs://b/k")


@pytest.mark.parametrize(
    ("status", "code", "kind", "advice"),
    [
        (400, "UserProjectMissing", ConfigError, "user_project="),
        (401, "AuthenticationRequired", Unauthenticated, "anonymous=True"),
        (403, "SignatureDoesNotMatch", Unauthenticated, "GCS_SECRET"),
        (403, "AccessDenied", Forbidden, "may not do this"),
        (403, "RetentionPolicyNotMet", Forbidden, "held or retained"),
        (404, "NoSuchBucket", NotFound, "bucket's name"),
        (429, "", Throttled, ""),
    ],
)
def test_gcs_error_code_selects_exception_and_advice(status, code, kind, advice):
    error = _refusal(status, code).error
    assert type(error) is kind
    assert advice in str(error)
    assert error.code == code


@pytest.mark.parametrize(("status", "code"), [(401, ""), (401, "AuthenticationRequired"), (400, "ExpiredToken")])
def test_a_refused_token_is_renewed(status, code):
    assert _refusal(status, code).meaning.renews


def test_every_row_makes_an_error():
    for code, meaning in GOOGLE_CODES.codes.items():
        assert isinstance(_refusal(400, code).error, PenstockError)
        assert not meaning.region
