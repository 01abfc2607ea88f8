"""A success is its headers or its document; every other answer is an error with the object's URL."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.driver import RANGE_IGNORED, Abilities, Beginning
from penstock.engine.contracts.exchange import Exchange, Request, Response
from penstock.errors import (
    AlreadyExists,
    Changed,
    ConfigError,
    Conflict,
    Damaged,
    Forbidden,
    NotFound,
    PenstockError,
    PreconditionFailed,
    Throttled,
    Transient,
    Truncated,
    Unauthenticated,
    Unreachable,
    Unusable,
)
from penstock.stores.http.answers import STATUSES, Answers, Codes, Meaning, Reads, child_texts, local_name, parse_xml
from penstock.stores.http.verify import Verification
from penstock.values import Span
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
    refusals = [_answers().error(Response(status, fault=fault), "read", "k") for status in (403, 404)]
    assert [(type(each), each.retries) for each in refusals] == [(Forbidden, 3), (NotFound, 0)], "403 may need its code"
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
    with pytest.raises(Damaged, match=r"<Other> instead of <Listing>: not a valid Cloud answer.*cloud://c/k"):
        answers.document(Response(200, body=document("Other")), "list", "k", "Listing", "Id")
    with pytest.raises(Damaged, match="too long for Cloud"):
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


# -- Every refusal becomes an error that says what to do: by its code, else by its status, else by the status's class --


TABLE = Codes(
    service="Elsewhere",
    codes={"Expired": Meaning(Unauthenticated, "; do this", renews=True), "Moved": Meaning(ConfigError, "; or that")},
    header="x-ms-error-code",
    region_of=lambda response: response.headers.get("region", ""),
)
# RFC 9110, section 15: every status of an error that it defines; and 425, 429, 507 of RFCs 8470, 6585 and 4918.
RFC_STATUSES = [*range(400, 406), *range(406, 418), 421, 422, 425, 426, 429, *range(500, 506), 507]


def _error(response, action="read"):
    return TABLE.refusal(response, action, "s3://b/k").error


def test_a_code_decides_before_the_status():
    error = _error(Response(418, body=document("Error", Code="Expired", Message="in <words>")))
    assert type(error) is Unauthenticated
    assert (error.code, error.url) == ("Expired", "s3://b/k")
    assert "cannot read: HTTP 418 Expired (in <words>); do this" in str(error)


def test_error_code_is_read_from_header_without_body():
    assert type(_error(Response(404, {"x-ms-error-code": "Expired"}))) is Unauthenticated
    assert _error(Response(403, {"x-ms-error-code": "no <code>"})).code == ""
    assert type(_error(Response(403, {"x-ms-error-code": "no <code>"}))) is Forbidden


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_decides_where_no_code_is_known(status):
    for body in (b"", document("Error", Code="NobodyKnowsThisCode"), b"<html>"):
        error = _error(Response(status, body=body), "list")
        assert type(error) is STATUSES[status].error
        assert str(error).startswith(f"cannot list: HTTP {status}")
        assert STATUSES[status].advice.replace("{where}", "endpoint=") in str(error)


@pytest.mark.parametrize("status", RFC_STATUSES)
def test_every_status_of_the_standard_has_an_error_that_is_tried_again_where_that_helps(status):
    transient = {408, 425, 429, 500, 502, 503, 504, 505}
    assert isinstance(_error(Response(status)), Transient) is (status in transient)


@given(st.integers(300, 999), st.binary(max_size=200))
def test_there_is_an_error_for_every_answer(status, body):
    error = _error(Response(status, body=body))
    assert isinstance(error, PenstockError)
    assert isinstance(error, Transient) or status < 500 or status in STATUSES


@pytest.mark.parametrize(("status", "kind"), [(305, ConfigError), (418, Unusable), (599, Transient)])
def test_a_status_in_no_table_goes_by_its_class(status, kind):
    assert type(_error(Response(status))) is kind


def test_a_named_region_is_in_the_advice_of_a_wrong_setting_only():
    moved = document("Error", Code="Moved")
    assert "region='eu'" in str(_error(Response(400, {"region": "eu"}, moved)))
    assert "; or that" in str(_error(Response(400, {}, moved)))
    assert "eu" not in str(_error(Response(403, {"region": "eu"})))


def test_retry_after_is_passed_on():
    error = _error(Response(503, {"retry-after": "7"}))
    assert (type(error), error.retry_after_s) == (Throttled, 7.0)


# -- XML that no object store sends is refused before it is parsed; all other XML is read --


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"  \n",
        b"<ListBucketResult>",
        b'<!DOCTYPE a [<!ENTITY a "' + b"a" * 1000 + b'">]><a>' + b"&a;" * 1000 + b"</a>",
        '<?xml version="1.0" encoding="UTF-16"?><a/>'.encode("utf-16"),
        b'<?xml version="1.0" encoding="cp037"?>\x4c\x81\x61\x6e',
        b"<?xml version='1.0' encoding='utf-7'?><a/>",
        b'<?xml version="1.0" encoding="no-such"?><a/>',
        b"\xff\xfe<\0a\0/\0>\0",
        b"<a>&nbsp;</a>",
        b"<a>\x01</a>",
        b"<a/><b/>",
        b"plain",
    ],
)
def test_xml_that_no_object_store_sends_is_damaged(body):
    with pytest.raises(Damaged, match="check endpoint="):
        parse_xml(body)


def test_names_and_texts_are_without_namespaces():
    root = parse_xml(b'<R xmlns="urn:x"><A>1</A><B/><A xmlns="urn:y">2</A></R>')
    assert (local_name(root), child_texts(root)) == ("R", {"A": "2", "B": ""})


_ENTRIES = b"<Contents><Key>key</Key><Size>1</Size></Contents>" * 2000


@pytest.mark.parametrize(
    "body",
    [
        b"<r xmlns='" + b"u" * (1 << 20) + b"'>" + b"".join(b"<a%d/>" % number for number in range(2000)) + b"</r>",
        b"<r>" + b"".join(b"<%s%d/>" % (b"a" * 20, number) for number in range(600_000)) + b"</r>",
        b"<r>" + b"<a>" * 600_000 + b"</a>" * 600_000 + b"</r>",
        b"<r " + b" ".join(b"a%d='1'" % number for number in range(600_000)) + b"/>",
        b"<r a='" + b"&amp;" * (1 << 20) + b"'/>",
        b"<r><!-- " + b"x" * (1 << 20) + b" --></r>",
        b"<r><Key>" + b"%41" * (1 << 20) + b"</Key></r>",
    ],
    ids=["namespace", "names", "depth", "attributes", "entities", "comment", "text"],
)
def test_xml_out_of_proportion_is_damaged_in_no_time(body):
    """A megabyte with a long namespace took four gigabytes and ten seconds."""
    began = time.thread_time()
    with pytest.raises(Damaged, match="check endpoint="):
        parse_xml(body)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize("aside", [b"", b"<!-- <x> -->", b"<?x <x> ?>", b"<![CDATA[<x>]]>"])
def test_a_long_answer_reads_as_a_short_one(aside):
    root = parse_xml(b"<?xml version='1.0' encoding='UTF-8'?><r xmlns='urn:x'>" + aside + _ENTRIES + b"</r>")
    assert [child_texts(each) for each in root] == [{"Key": "key", "Size": "1"}] * 2000
    assert local_name(root) == "r"


@pytest.mark.parametrize(
    "namespace", [b"xmlns = 'urn:x'", b"xmlns:%s='urn:x'" % (b"p" * 40), b"xmlns='%s'" % (b"u" * 900)]
)
def test_a_namespace_written_in_an_odd_way_changes_nothing(namespace):
    prefix = b"p" * 40 + b":" if b"xmlns:" in namespace else b""
    root = parse_xml(b"<%sR %s><%sA B='1'>xmlns=</%sA></%sR>" % (prefix, namespace, prefix, prefix, prefix))
    assert (local_name(root), child_texts(root), root[0].get("B")) == ("R", {"A": "xmlns="}, "1")


# -- A dialect is the request of a read; what the answers show is verified and learned here, as for every dialect --


class Nobody:
    """Signs nothing."""

    def current(self):
        return None


class Plain(Reads):
    """The least dialect: a path for each key."""

    def __init__(self):
        self.abilities = Abilities(ranges=None)
        self._verify = Verification()
        self._sized = self._verify.sized_headers
        self._answers = Answers(Codes(service="a test's", codes={}), Nobody(), self)

    def url(self, key):
        return f"plain://{key}"

    def read(self, span, target):
        request = self._whole(span.key, span.etag)
        request.target = target
        return Exchange(request, lambda response: self._verified(span, target, response))

    def _whole(self, key, etag):
        return Request("GET", f"http://localhost/{key}", (f"if-match: {etag}",) if etag else ())


def test_a_range_that_is_honoured_is_learned_and_one_that_is_not_too():
    plain, span, target = Plain(), Span("key", 2, 5), Buffer.allocate(3)
    parse = plain.read(span, target).parse
    partial = Response(206, {"content-range": "bytes 2-4/9"}, received=3)
    assert (parse(partial), plain.abilities.ranges) == (3, True)
    with pytest.raises(Unusable) as caught:
        parse(Response(200, {"content-length": "9"}, overflow=True))
    assert (caught.value.code, caught.value.url) == (RANGE_IGNORED, "plain://key")
    assert plain.abilities.ranges is False


def test_a_whole_object_shows_nothing_of_ranges():
    plain, target = Plain(), Buffer.allocate(3)
    whole = plain.read(Span("key", 0, 3, whole=True), target)
    assert whole.parse(Response(200, {"content-length": "3"}, received=3)) == 3
    assert plain.abilities.ranges is None


@pytest.mark.parametrize(("status", "kind"), [(403, Forbidden), (416, Truncated)])
def test_a_refusal_names_the_object(status, kind):
    plain = Plain()
    for exchange in (
        plain.read(Span("key", 0, 3), Buffer.allocate(3)),
        plain.get("key", ""),
        plain.get("key", "", 9, Buffer.allocate(3)),
    ):
        with pytest.raises(kind, match=r"plain://key"):
            exchange.parse(Response(status))


def test_an_object_of_unknown_size_is_bounded_with_a_buffer_and_without():
    plain = Plain()
    with pytest.raises(Unusable, match="9 bytes"):
        plain.get("key", "", 9).parse(Response(200, overflow=True))
    much = Response(200, {"content-length": "10", "etag": '"e"'}, received=3, overflow=True)
    with pytest.raises(Unusable):
        plain.get("key", "", 9, Buffer.allocate(3)).parse(much)
    assert plain.get("key", "", 10, Buffer.allocate(3)).parse(much)[1:] == (10, "e")
    assert isinstance(plain.get("key", "", 10, Buffer.allocate(3)).parse(much), Beginning)


def test_interrupted_object_response_raises_unreachable():
    plain = Plain()
    broken = Response(200, {"content-length": "3"}, received=2, fault=Unreachable("reset"))
    with pytest.raises(Unreachable, match="plain://key"):
        plain.get("key", "", 9, Buffer.allocate(3)).parse(broken)
