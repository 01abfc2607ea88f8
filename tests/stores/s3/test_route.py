"""Nothing signed goes to a host that the user did not name: regions and redirects stay within the service, and TLS."""

import pytest

from penstock.engine.buffer import Buffer
from penstock.engine.contracts.credentials import Credentials
from penstock.engine.contracts.exchange import Response
from penstock.errors import ConfigError, PenstockError, Transient, Unusable
from penstock.stores.s3.dialect import BucketAddress
from penstock.stores.s3.driver import S3Driver
from penstock.values import Span
from tests.servers.hostile import document


class Identity:
    """Temporary credentials, and how often they were renewed."""

    def __init__(self, token="token", *, loading=False):  # noqa: S107  no real one
        self.credentials = Credentials("id", "secret", token)
        self.renewed = 0
        self._loading = loading

    def current(self):
        return self.credentials

    def refresh_if_due(self):
        pass

    def renew(self):
        self.renewed += 1
        return self._loading


def _driver(endpoint=None, region="us-east-1", identity=None, *, virtual=True):
    return S3Driver(BucketAddress("b", endpoint, virtual), region, identity or Identity())


def _refused(driver, response, key="k"):
    exchange = driver.read(Span(key, 0, 4), Buffer.allocate(4))
    with pytest.raises(PenstockError) as caught:
        exchange.parse(response)
    return caught.value


def _sent(driver, key="k"):
    request = driver.read(Span(key, 0, 4), Buffer.allocate(4)).request
    return request.url, " ".join(request.headers)


def _moved(region):
    return Response(400, body=document("Error", Code="AuthorizationHeaderMalformed", Region=region))


def test_a_named_region_is_followed_within_the_services_own_domain():
    driver = _driver()
    assert _sent(driver)[0] == "https://b.s3.us-east-1.amazonaws.com/k"
    for _ in range(2):  # of many in flight each is told
        assert _refused(driver, _moved("eu-west-1")).retries == 3
    url, headers = _sent(driver)
    assert url == "https://b.s3.eu-west-1.amazonaws.com/k"
    assert "/eu-west-1/s3/" in headers


def test_a_region_of_another_domain_is_not_followed():
    driver = _driver()
    assert _refused(driver, _moved("cn-north-1")).retries == 0
    assert _sent(driver)[0] == "https://b.s3.us-east-1.amazonaws.com/k"


@pytest.mark.parametrize("region", ["evil.com/", "x@evil.com", "evil.com#", "a.evil"])
def test_a_region_that_names_a_host_is_not_followed(region):
    driver = _driver()
    assert _refused(driver, _moved(region)).retries == 0
    assert _refused(driver, Response(301, {"x-amz-bucket-region": region})).retries == 0
    assert _sent(driver)[0] == "https://b.s3.us-east-1.amazonaws.com/k"


def test_user_named_endpoint_is_kept_when_response_names_another_region():
    driver = _driver("https://store.example:9000", virtual=False)
    assert _refused(driver, _moved("eu-west-1")).retries == 3
    url, headers = _sent(driver)
    assert url == "https://store.example:9000/b/k"
    assert "/eu-west-1/s3/" in headers


def test_a_refusal_that_no_region_helps_against_is_not_tried_again():
    refusal = Response(400, {"x-amz-bucket-region": "eu-west-1"}, document("Error", Code="EntityTooSmall"))
    assert _refused(_driver(), refusal).retries == 0


def test_a_redirect_within_the_service_is_followed_once():
    driver, other = _driver(), "https://b.s3.eu-west-1.amazonaws.com"
    answer = Response(307, {"location": f"{other}/k"}, document("Error", Code="TemporaryRedirect"))
    assert isinstance(_refused(driver, answer), Transient)
    url, headers = _sent(driver)
    assert (url, "host:b.s3.eu-west-1.amazonaws.com" in headers) == (f"{other}/k", True)
    assert _sent(driver)[0] == "https://b.s3.us-east-1.amazonaws.com/k"


def test_redirects_that_were_given_up_are_not_kept_for_ever():
    driver, other = _driver(), "https://b.s3.eu-west-1.amazonaws.com"
    for number in range(3000):
        _refused(driver, Response(307, {"location": f"{other}/{number}"}), str(number))
    assert 0 < len(driver._route.redirects) <= 1024


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize(
    ("endpoint", "location"),
    [
        (None, "https://b.evil.com/k"),
        (None, "http://b.s3.eu-west-1.amazonaws.com/k"),
        (None, "https://b.s3.eu-west-1.amazonaws.com/other"),
        ("https://store.example", "https://b.s3.eu-west-1.amazonaws.com/k"),
        ("https://store.example", "https://b.other.example/k"),
        ("https://store.example", "http://b.store.example/k"),
        ("http://127.0.0.1:9000", "http://b.127.0.0.1:9001/k"),
    ],
)
def test_no_other_redirect_is_followed(endpoint, location, status):
    driver = _driver(endpoint)
    before = _sent(driver)[0]
    error = _refused(driver, Response(status, {"location": location}))
    assert (type(error), error.retries) == (ConfigError, 0)
    assert _sent(driver)[0] == before


def test_a_redirect_from_no_tls_to_tls_on_the_same_host_is_followed():
    driver = _driver("http://store.example", virtual=False)
    assert _refused(driver, Response(301, {"location": "https://store.example/b/k"})).retries == 3
    assert _sent(driver)[0] == "https://store.example/b/k"


def test_expired_credentials_are_renewed_and_the_request_is_tried_again():
    for code in ("ExpiredToken", "InvalidToken", "RequestExpired", "TokenRefreshRequired"):
        identity = Identity()
        error = _refused(_driver(identity=identity), Response(400, body=document("Error", Code=code)))
        assert (identity.renewed, error.retries) == (1, 3), code


@pytest.mark.parametrize(("token", "status", "renewed"), [("t", 403, 1), ("t", 400, 1), ("", 403, 0), ("t", 404, 0)])
def test_a_refusal_without_a_code_renews_temporary_credentials_only(token, status, renewed):
    identity = Identity(token)
    error = _refused(_driver(identity=identity), Response(status))
    assert (identity.renewed, error.retries) == (renewed, 3 * renewed)


@pytest.mark.parametrize("response", [Response(400), Response(400, body=document("Error", Code="ExpiredToken"))])
def test_requests_wait_for_new_credentials_that_are_loaded_with_and_without_a_code(response):
    error = _refused(_driver(identity=Identity(loading=True)), response)
    assert error.retries == Transient.retries


@pytest.mark.parametrize("code", ["AccessDenied", "NobodyKnowsThisCode", "SignatureDoesNotMatch"])
def test_a_refusal_with_another_code_renews_nothing(code):
    identity = Identity()
    error = _refused(_driver(identity=identity), Response(403, body=document("Error", Code=code)))
    assert (identity.renewed, error.retries) == (0, 0)
    assert not isinstance(error, Unusable)


@pytest.mark.parametrize(
    ("driver", "url", "body"),
    [
        (_driver(), "https://b.s3.us-east-1.amazonaws.com/", None),
        (_driver(region="eu-west-1"), "https://b.s3.eu-west-1.amazonaws.com/", b">eu-west-1<"),
        (_driver("http://host:9000", "eu-west-1", virtual=False), "http://host:9000/b", None),
    ],
)
def test_only_amazons_own_endpoints_outside_the_first_region_get_a_location(driver, url, body):
    made, removed = driver.make_bucket().request, driver.remove_bucket().request
    assert (made.method, made.url, removed.method, removed.url) == ("PUT", url, "DELETE", url)
    assert made.body is None if body is None else body in made.body
    full = driver.remove_bucket()
    with pytest.raises(Unusable, match="old versions of objects"):
        full.parse(Response(409, body=document("Error", Code="BucketNotEmpty")))
