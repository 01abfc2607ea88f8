"""A success is its headers or its document; every other answer is an error with the object's URL."""

import pytest

from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.exchange import Response
from penstock.errors import (
    AlreadyExists,
    Changed,
    Conflict,
    Damaged,
    Forbidden,
    NotFound,
    PreconditionFailed,
    Transient,
    Unauthenticated,
    Unreachable,
)
from penstock.stores.http.answers import STATUSES, Answers, Codes, Meaning
from tests.servers.hostile import document

CODES = Codes(
    service="Cloud",
    codes={
        "BlobNotFound": Meaning(NotFound, missing="object"),
        "ContainerNotFound": Meaning(NotFound, missing="bucket"),
        "BlobAlreadyExists": Meaning(AlreadyExists),
        "LeaseIdMissing": Meaning(Conflict),
        "Expired": Meaning(Unauthenticated, renews=True),
        "Elsewhere": Meaning(Transient, region=True, redirect=True),
    },
    statuses={**STATUSES, 403: Meaning(Forbidden, renews=True)},
    header="x-ms-error-code",
    region_of=lambda response: response.headers.get("region", ""),
)


class Store:
    """A store and an identity that note what they are told."""

    def __init__(self, token="", *, follows=True):
        self.told = []
        self._follows = follows
        self._credentials = Credentials("id", "secret", token)

    def url(self, key):
        return f"cloud://c/{key}"

    def follow_region(self, region):
        self.told.append(("region", region))
        return self._follows

    def follow_redirect(self, key, location):
        self.told.append((key, location))
        return self._follows

    def current(self):
        return self._credentials

    def refresh_if_due(self):
        pass

    def renew(self):
        self.told.append("renewed")
        return len(self.told) > 1


def _answers(store=None):
    store = store or Store()
    return Answers(CODES, store, store)


def _coded(status, code, **headers):
    return Response(status, {"x-ms-error-code": code, **headers})


@pytest.mark.parametrize(
    ("action", "response", "kind"),
    [
        ("read", Response(412), Changed),
        ("copy", Response(412), Changed),
        ("replace", Response(412), PreconditionFailed),
        ("replace", _coded(404, "BlobNotFound"), PreconditionFailed),
        ("replace", _coded(404, "ContainerNotFound"), NotFound),
        ("write", Response(412), AlreadyExists),
        ("write", _coded(409, "BlobAlreadyExists"), AlreadyExists),
        ("write", _coded(412, "LeaseIdMissing"), Conflict),
        ("write", _coded(412, "NobodyKnowsThisCode"), AlreadyExists),
        ("read", _coded(404, "BlobNotFound"), NotFound),
    ],
)
def test_unmet_condition_raises_the_error_for_its_action(action, response, kind):
    error = _answers().error(response, action, "k")
    assert (type(error), error.url) == (kind, "cloud://c/k")


def test_a_refusal_that_was_cut_short_is_still_the_refusal():
    fault = Unreachable("broken")
    assert type(_answers().error(Response(403, fault=fault), "read", "k")) is Forbidden
    error = _answers().error(Response(200, fault=fault), "read", "k")
    assert (error, error.url) == (fault, "cloud://c/k")


def test_deletion_of_missing_key_succeeds_but_missing_bucket_raises():
    parse = _answers().deletion("delete", "k")
    for done in (Response(204), Response(404), _coded(404, "BlobNotFound"), _coded(404, "NobodyKnowsThisCode")):
        assert parse(done) is None
    for refused in (_coded(404, "ContainerNotFound"), Response(404, body=b"<html>no such page</html>")):
        with pytest.raises(NotFound):
            parse(refused)
    cut = Response(404, fault=Unreachable("broken"))
    with pytest.raises(Unreachable):
        parse(cut)
    with pytest.raises(Damaged, match="cannot delete: the server answers <html>"):
        parse(Response(200, body=b"<html/>"))


def test_document_requires_expected_root_or_identifying_child():
    answers = _answers()
    found = answers.document(Response(200, body=document("Listing")), "list", "k", "Listing")
    assert found.tag == "Listing"
    assert answers.document(Response(200, body=document("Other", Id="1")), "list", "k", "Listing", "Id").tag == "Other"
    with pytest.raises(Damaged, match=r"<Other> where <Listing> was expected: not a valid Cloud answer.*cloud://c/k"):
        answers.document(Response(200, body=document("Other")), "list", "k", "Listing", "Id")
    with pytest.raises(Damaged, match="longer than any that Cloud gives"):
        answers.document(Response(200, overflow=True), "list", "k", "Listing")


def test_an_error_in_a_200_is_that_error_or_one_to_try_again():
    for code, kind in (("BlobAlreadyExists", AlreadyExists), ("NobodyKnowsThisCode", Transient)):
        with pytest.raises(kind):
            _answers().document(Response(200, body=document("Error", Code=code)), "write", "k", "Done")


def test_a_written_version_is_in_the_header_or_in_the_document():
    answers, etag = _answers(), {"etag": '"e"'}
    assert answers.version(Response(200, etag), "etag", "write", "k") == "e"
    body = document("Done", ETag='"f"')
    assert answers.version(Response(200, etag, body), "etag", "write", "k", "Done") == "f"
    both = Response(200, {**etag, "x-goog-generation": "17"}, body)
    assert answers.version(both, "x-goog-generation", "write", "k", "Done") == "17"


@pytest.mark.parametrize(
    ("token", "response", "told"),
    [
        ("", _coded(400, "Expired"), ["renewed"]),
        ("", Response(403), []),
        ("temporary", Response(403), ["renewed"]),
        ("temporary", _coded(403, "NobodyKnowsThisCode"), []),
        ("temporary", _coded(404, "BlobNotFound"), []),
        ("", _coded(307, "Elsewhere", region="eu", location="https://x/k"), [("region", "eu")]),
        ("", _coded(307, "Elsewhere", location="https://x/k"), [("k", "https://x/k")]),
        ("", _coded(307, "Elsewhere"), []),
        ("", _coded(404, "BlobNotFound", region="eu", location="https://x/k"), []),
        ("", Response(302, {"location": "https://x/k"}), [("k", "https://x/k")]),
        ("", Response(304, {"location": "https://x/k"}), []),
    ],
)
def test_error_table_decides_credential_renewal_and_redirect_repair(token, response, told):
    store = Store(token)
    error = _answers(store).error(response, "read", "k")
    assert store.told == told
    repaired = type(error).retries or (3 if told else 0)
    assert error.retries == (3 if told else repaired)


def test_expired_credentials_are_retried_until_new_ones_are_loaded():
    answers = _answers(Store())
    assert answers.error(_coded(400, "Expired"), "read", "k").retries == 3, "this refusal begins to load them"
    assert answers.error(_coded(400, "Expired"), "read", "k").retries == Transient.retries


@pytest.mark.parametrize("location", ["https://evil/k", "http://x/k"])
def test_redirect_not_followed_by_the_store_has_no_retries(location):
    store = Store(follows=False)
    assert _answers(store).error(Response(302, {"location": location}), "read", "k").retries == 0
