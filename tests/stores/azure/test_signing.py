"""What authorises a request is what Microsoft's own client makes of it, and no secret is where it could be read."""

import random
from base64 import b64encode
from datetime import UTC, datetime
from types import SimpleNamespace
from urllib.parse import parse_qs, quote

import pytest
from azure.storage.blob import generate_blob_sas
from azure.storage.blob._shared.authentication import SharedKeyCredentialPolicy

from penstock.engine.contracts.credentials import BearerToken
from penstock.stores.azure.signing import AccountKey, AzureSigner, Container, SharedAccess
from penstock.stores.http.headers import escape

KEY = b64encode(bytes(range(64))).decode()
PLACE = Container("box", "account", "https://account.blob.core.windows.net", "az://box/")
NOW = 1_795_000_000


def _signer(credentials, place=PLACE):
    return AzureSigner(place, lambda: credentials, lambda: NOW)


def _theirs(method, path, query, lines, length):
    """Return the Authorization that azure-storage-blob would send with these headers."""
    headers = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    headers.pop("Authorization", None)
    headers["Content-Length"] = str(length)
    request = SimpleNamespace(
        method=method,
        url=f"https://account.blob.core.windows.net{path}",
        headers=headers,
        query={name: quote(value) for name, value in query.items()},
    )
    policy = SharedKeyCredentialPolicy("account", KEY)
    policy.on_request(SimpleNamespace(http_request=request, context=SimpleNamespace(transport=None)))
    return headers["Authorization"]


NAMES = ["a", "a1", "a_b", "ab", "A0".lower(), "_x", "__", "z9_", "ab_", "a_1", "b__c", "penstockwrite"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_a_signature_is_the_one_that_microsofts_client_makes(method, seed):
    draw = random.Random(seed)
    for _ in range(50):
        headers = {f"x-ms-meta-{name}": f"value {name}" for name in draw.sample(NAMES, draw.randrange(len(NAMES)))}
        headers |= draw.choice([{}, {"if-match": '"0x8D"'}, {"if-none-match": "*"}])
        headers |= draw.choice(
            [{}, {"x-ms-range": "bytes=0-9"}, {"x-ms-blob-type": "BlockBlob"}, {"content-md5": "x=="}]
        )
        headers |= draw.choice([{}, {"x-ms-copy-source": "https://h/p?sv=1&sig=a%2Fb", "x-ms-requires-sync": "true"}])
        query = draw.choice([{}, {"comp": "block", "blockid": "QUJD+/=="}, {"restype": "container", "comp": "list"}])
        path = f"/box/{escape(draw.choice(['key', 'a b/ü+%?', '日本', 'a//b']))}"
        length = draw.choice([0, 5])
        search, lines = _signer(AccountKey(KEY)).sign(method, path, query, headers, length)
        assert lines[-1].replace(":", ": ", 1) == f"Authorization: {_theirs(method, path, query, lines, length)}"
        assert {name: values[0] for name, values in parse_qs(search[1:]).items()} == query


def test_emulator_account_appears_twice_in_the_string_to_sign():
    place = Container("box", "account", "http://127.0.0.1:10000/account", "az://box/")
    _, lines = _signer(AccountKey(KEY), place).sign("GET", "/account/box/key", {}, {})
    assert lines[-1] == f"Authorization:{_theirs('GET', '/account/box/key', {}, lines, 0)}"
    _, others = _signer(AccountKey(KEY)).sign("GET", "/box/key", {}, {})
    assert lines[-1] != others[-1]


def test_a_long_key_and_another_key_sign_too():
    long = b64encode(bytes(200)).decode()
    keys = [AccountKey(KEY), AccountKey(long)]
    signer = AzureSigner(PLACE, lambda: keys[0], lambda: NOW)
    first = signer.sign("GET", "/box/key", {}, {})[1][-1]
    keys.pop(0)
    assert signer.sign("GET", "/box/key", {}, {})[1][-1] != first
    theirs = SharedKeyCredentialPolicy("account", long)
    assert theirs.account_key == long


def test_the_date_is_of_this_second():
    now = [NOW]
    signer = AzureSigner(PLACE, lambda: AccountKey(KEY), lambda: now[0])
    dates = []
    for _ in range(2):
        dates.append(next(line for line in signer.sign("GET", "/box/key", {}, {})[1] if line.startswith("x-ms-date")))
        now[0] += 1
    assert dates[0] != dates[1]


def test_a_token_goes_into_the_header_and_a_shared_access_signature_into_the_query():
    _, lines = _signer(BearerToken("t0ken")).sign("GET", "/box/key", {}, {})
    assert "Authorization:Bearer t0ken" in lines
    sas = SharedAccess("sv=2023&sig=abc%3D")
    search, lines = _signer(sas).sign("GET", "/box/key", {}, {})
    assert (search, any("Authorization" in line for line in lines)) == ("?sv=2023&sig=abc%3D", False)
    assert _signer(sas).sign("GET", "/box", {"comp": "list"}, {})[0] == "?comp=list&sv=2023&sig=abc%3D"
    search, lines = _signer(None).sign("GET", "/box/key", {}, {})
    assert (search, any("Authorization" in line for line in lines)) == ("", False)


def test_a_source_is_readable_by_a_signature_that_microsofts_client_makes():
    url = f"https://account.blob.core.windows.net/box/{escape('a b/ü')}"
    headers = _signer(AccountKey(KEY)).source("a b/ü", url)
    where, _, query = headers["x-ms-copy-source"].partition("?")
    assert where == url
    theirs = generate_blob_sas(
        "account",
        "box",
        "a b/ü",
        account_key=KEY,
        permission="r",
        expiry=datetime.fromtimestamp(NOW + 900, UTC),
        protocol="https",
        api_version="2023-11-03",
    )
    ours, other = parse_qs(query), parse_qs(theirs)
    if ours["sv"] == other["sv"]:  # the client signs for its own version, whatever it is asked for
        assert ours == other
    assert (ours["sp"], ours["sr"], ours["spr"]) == (["r"], ["b"], ["https"])


def test_a_source_is_read_with_the_token_or_the_signature_that_the_writer_has():
    url = "https://account.blob.core.windows.net/box/key"
    assert _signer(SharedAccess("sv=1&sig=x")).source("key", url) == {"x-ms-copy-source": f"{url}?sv=1&sig=x"}
    assert _signer(BearerToken("t")).source("key", url)["x-ms-copy-source-authorization"] == "Bearer t"
    assert _signer(None).source("key", url) == {"x-ms-copy-source": url}


def test_no_repr_shows_a_secret():
    shown = f"{AccountKey('secret', 'here')!r} {SharedAccess('sig=secret%3D', 'there')!r}"
    assert "secret" not in shown
    assert SharedAccess("sv=1&sig=a%2Fb%3D").signature == "a/b="
