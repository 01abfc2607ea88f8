"""Credentials are found where AWS tools look, by the real chain, and never shown."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import sys
import threading
import time
import traceback
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from penstock.engine.contracts.credentials import Credentials
from penstock.errors import ConfigError, PenstockError, Throttled, Unauthenticated, Unreachable
from penstock.options import TransportOptions
from penstock.stores.credentials import RefreshingCredentials
from penstock.stores.s3.credentials import AmazonCredentials
from penstock.stores.s3.options import S3Options
from penstock.stores.s3.settings import resolve
from penstock.stores.urls import parse

MARK = "hush0hush"  # stands for every secret that must not be seen
ENV = {"AWS_ACCESS_KEY_ID": "env-id", "AWS_SECRET_ACCESS_KEY": "env-secret", "AWS_SESSION_TOKEN": "env-token"}
LAB = "[lab]\naws_access_key_id = lab-id\naws_secret_access_key = lab-secret\n"
DEFAULT = "[default]\naws_access_key_id = file-id\naws_secret_access_key = file-secret\n"


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write both shared files and point this process to them (botocore reads the process's environment)."""

    def _write(config="", credentials=""):
        for name, text in {"AWS_CONFIG_FILE": config, "AWS_SHARED_CREDENTIALS_FILE": credentials}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
            monkeypatch.setenv(name, str(tmp_path / name))

    return _write


@pytest.fixture
def environment(monkeypatch):
    """Set variables of this process."""

    def _set(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return _set


@pytest.fixture
def _no_botocore(monkeypatch):
    monkeypatch.setitem(sys.modules, "botocore.session", None)


def keys(options=None):
    found = AmazonCredentials(options or S3Options(), os.environ).load()
    return found and (found.access_key, found.secret_key, found.token)


# --- where credentials come from


def test_explicit_keys_beat_everything(write, environment):
    write(credentials=DEFAULT)
    environment(**ENV, AWS_NO_SIGN_REQUEST="YES")
    assert keys(S3Options(access_key="a", secret_key="b")) == ("a", "b", "")
    assert keys(S3Options(access_key="a", secret_key="b", session_token="c")) == ("a", "b", "c")


def test_anonymous_beats_the_environment_and_every_file(write, environment):
    write(credentials=DEFAULT)
    environment(**ENV)
    assert keys(S3Options(anonymous=True)) is None
    environment(AWS_NO_SIGN_REQUEST="YES")
    assert keys() is None


@pytest.mark.parametrize("botocore", [True, False])
def test_the_environment_beats_the_files_and_an_explicit_profile_beats_the_environment(
    botocore, write, environment, request
):
    if not botocore:
        request.getfixturevalue("_no_botocore")
    write(credentials=DEFAULT + LAB)
    assert keys() == ("file-id", "file-secret", "")
    environment(AWS_PROFILE="lab")
    assert keys() == ("lab-id", "lab-secret", "")
    environment(**ENV)
    assert keys() == ("env-id", "env-secret", "env-token")
    assert keys(S3Options(profile="lab")) == ("lab-id", "lab-secret", "")


def test_another_environment_than_the_process_s_names_its_own_files(tmp_path):
    (tmp_path / "c").write_text(LAB, encoding="utf-8")
    environ = {**os.environ, "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "c"), "AWS_PROFILE": "lab"}
    assert AmazonCredentials(S3Options(), environ).load() == Credentials("lab-id", "lab-secret")


@pytest.mark.parametrize("missing", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_half_a_pair_of_keys_is_a_mistake(missing, environment):
    environment(**ENV | {missing: ""})
    with pytest.raises(ConfigError, match=r"AWS_ACCESS_KEY_ID.*incomplete or empty pair"):
        keys()


@pytest.mark.parametrize("botocore", [True, False])
def test_half_a_pair_in_a_file_is_a_mistake_too(botocore, write, request):
    if not botocore:
        request.getfixturevalue("_no_botocore")
    write(credentials="[default]\naws_access_key_id = file-id\n")
    with pytest.raises(ConfigError):
        keys()


def test_keys_that_cannot_be_sent_are_refused(environment):
    environment(**ENV | {"AWS_SECRET_ACCESS_KEY": "env-secret\n"})
    with pytest.raises(ConfigError, match="line break"):
        keys()
    with pytest.raises(ConfigError, match="empty"):
        keys(S3Options(access_key="", secret_key=""))


def test_missing_credentials_error_names_searched_places_and_remedy(write):
    write()
    with pytest.raises(Unauthenticated) as caught:
        keys()
    for text in ("AWS_ACCESS_KEY_ID", os.environ["AWS_CONFIG_FILE"], "instance metadata", "anonymous=True"):
        assert text in str(caught.value)
    assert "pip install" not in str(caught.value)


@pytest.mark.usefixtures("_no_botocore")
def test_missing_credentials_error_without_botocore_suggests_the_extra(write):
    write(config="[profile lab]\ncredential_process = /bin/x\n")
    with pytest.raises(Unauthenticated, match=r"profile 'lab'.*pip install penstock\[s3\].*anonymous=True"):
        keys(S3Options(profile="lab"))


# --- botocore's chain, for real


@contextmanager
def http(answers):
    """Serve ``{(method, path): (status, text)}`` on loopback; yields the base URL and the list of requests seen."""
    seen = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self):
            seen.append((self.command, self.path, self.headers.get("Authorization")))
            status, text = answers.get((self.command, self.path), (404, ""))
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PUT = do_POST = answer  # noqa: N815  http.server's names

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", seen
        finally:
            server.shutdown()
            thread.join()


def role(name, expires_in_s=7200):
    expires = datetime.fromtimestamp(int(time.time()) + expires_in_s, UTC)
    return {
        "AccessKeyId": f"{name}-id",
        "SecretAccessKey": f"{name}-secret",
        "Token": f"{name}-token",
        "SessionToken": f"{name}-token",
        "Expiration": expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def check_role(found, name, expires_in_s=7200):
    assert (found.access_key, found.secret_key, found.token) == (f"{name}-id", f"{name}-secret", f"{name}-token")
    assert found.expires_at == pytest.approx(time.time() + expires_in_s, abs=30)


def test_a_container_s_role(write, environment):
    write()
    with http({("GET", "/role"): (200, json.dumps(role("container")))}) as (url, seen):
        environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{url}/role", AWS_CONTAINER_AUTHORIZATION_TOKEN="open-sesame")
        check_role(AmazonCredentials(S3Options(), os.environ).load(), "container")
    assert seen == [("GET", "/role", "open-sesame")]


def test_an_instance_s_role(write, environment):
    write()
    base = "/latest/meta-data/iam/security-credentials/"
    answers = {
        ("PUT", "/latest/api/token"): (200, "t"),
        ("GET", base): (200, "node"),
        ("GET", f"{base}node"): (200, json.dumps(role("instance"))),
    }
    with http(answers) as (url, seen):
        environment(AWS_EC2_METADATA_DISABLED="false", AWS_EC2_METADATA_SERVICE_ENDPOINT=f"{url}/")
        check_role(AmazonCredentials(S3Options(), os.environ).load(), "instance")
    assert [path for _, path, _ in seen][-1] == f"{base}node"


def test_a_role_is_assumed_in_the_store_s_region(write, environment):
    """Botocore alone ignores AWS_REGION, and would ask in us-east-1: wrong in China, GovCloud and closed networks."""
    write(
        "[profile lab]\nrole_arn = arn:aws:iam::123456789012:role/trainer\nsource_profile = base\n",
        LAB.replace("lab]", "base]"),
    )
    parts = "".join(f"<{name}>{text}</{name}>" for name, text in role("assumed").items())
    result = f"<AssumeRoleResult><Credentials>{parts}</Credentials></AssumeRoleResult>"
    answer = f"<AssumeRoleResponse>{result}</AssumeRoleResponse>"
    with http({("POST", "/"): (200, answer)}) as (url, seen):
        environment(AWS_ENDPOINT_URL_STS=url, AWS_REGION="cn-north-1")
        check_role(AmazonCredentials(S3Options(profile="lab"), os.environ).load(), "assumed")
    assert "Credential=lab-id/" in seen[0][2]
    assert "/cn-north-1/sts/" in seen[0][2]


def process(tmp_path, text):
    """Return a profile whose credential process runs ``text``."""
    script = tmp_path / "process.py"
    script.write_text(text, encoding="utf-8")
    return f"[profile lab]\ncredential_process = {shlex.join([sys.executable, str(script)])}\n"


def test_a_credential_process_is_asked_again_for_every_load(write, tmp_path):
    answer = {"Version": 1, **role("process")}
    counter = tmp_path / "runs"
    write(process(tmp_path, f"print({json.dumps(answer)!r}); open({str(counter)!r}, 'a').write('x')"))
    chain = AmazonCredentials(S3Options(profile="lab"), os.environ)
    check_role(chain.load(), "process")
    check_role(chain.load(), "process")
    assert counter.read_text(encoding="utf-8") == "xx"


def test_a_rotated_file_is_seen_by_the_next_load(write):
    write(credentials=LAB)
    chain = AmazonCredentials(S3Options(profile="lab"), os.environ)
    assert chain.load().access_key == "lab-id"
    write(credentials=LAB.replace("lab-id", "new-id"))
    assert chain.load().access_key == "new-id"


@pytest.fixture
def identity(write, environment, tmp_path):
    """Leave nothing but a web identity, whose service is asked once."""
    write()
    (tmp_path / "token").write_text("a.b.c", encoding="utf-8")
    environment(
        AWS_ROLE_ARN="arn:aws:iam::123456789012:role/trainer",
        AWS_WEB_IDENTITY_TOKEN_FILE=str(tmp_path / "token"),
        AWS_REGION="eu-central-1",
        AWS_MAX_ATTEMPTS="1",
    )


@pytest.mark.usefixtures("identity")
def test_a_web_identity_with_only_aws_region_set(environment, moto_server):
    environment(AWS_ENDPOINT_URL_STS=moto_server.endpoint)
    found = AmazonCredentials(S3Options(), os.environ).load()
    assert found.access_key.startswith("ASIA")
    assert found.token
    assert found.expires_at == pytest.approx(time.time() + 3600, abs=60)


@pytest.mark.usefixtures("identity")
def test_a_service_that_is_away_may_be_tried_again(environment):
    environment(AWS_ENDPOINT_URL_STS="http://127.0.0.1:1")
    with pytest.raises(Unreachable):
        keys()


@pytest.mark.usefixtures("identity")
@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "AccessDenied", Unauthenticated),
        (400, "ExpiredTokenException", Unauthenticated),
        (400, "Throttling", Throttled),
        (429, "TooManyRequests", Throttled),
        (503, "ServiceUnavailable", Unreachable),
    ],
)
def test_a_refusal_names_the_service_s_code_and_not_its_words(status, code, kind, environment):
    answer = f"<ErrorResponse><Error><Code>{code}</Code><Message>{MARK}</Message></Error></ErrorResponse>"
    with http({("POST", "/"): (status, answer)}) as (url, _):
        environment(AWS_ENDPOINT_URL_STS=url)
        with pytest.raises(kind, match=f"{status} {code}") as caught:
            keys()
    assert MARK not in "".join(shown(caught.value))


def test_role_keys_are_renewed_from_a_real_container_service(write, environment):
    write()
    answers = {("GET", "/role"): (200, json.dumps(role("first")))}
    with http(answers) as (url, _):
        environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{url}/role")
        now = [time.time()]
        held = RefreshingCredentials(AmazonCredentials(S3Options(), os.environ), now=lambda: now[0])
        assert held.current().access_key == "first-id"
        answers["GET", "/role"] = (200, json.dumps(role("second", 14400)))
        held.refresh_if_due()
        assert held.current().access_key == "first-id"
        now[0] += 7200 - 299
        held.refresh_if_due()
        assert held.current().access_key == "second-id"


# --- never shown


def keys_of_resolved():
    resolve(S3Options())
    keys()


def shown(error):
    """Return everything an error carries to a log, a debugger or another process, with all that is chained to it."""
    texts = [str(error), repr(error), repr(vars(error)), repr(error.args), "".join(traceback.format_exception(error))]
    if isinstance(error, PenstockError):
        texts.append(pickle.dumps(error).decode("latin-1"))
    return texts + [text for cause in (error.__cause__, error.__context__) if cause for text in shown(cause)]


@pytest.mark.parametrize("botocore", [True, False])
@pytest.mark.parametrize(
    ("config", "credentials"),
    [
        ("", f"aws_secret_access_key = {MARK}\n"),
        ("", f"[default]\n{MARK}\n"),
        ("", f"[default]\naws_access_key_id = {MARK}\n"),
        ("", f"[default]\naws_access_key_id = {MARK}\naws_secret_access_key = {MARK} {MARK}\n"),
        (f"[default]\nendpoint_url = https://{MARK}:{MARK}@host\n", ""),
        (f"[default]\nservices = x\naws_secret_access_key = {MARK}\n", ""),
    ],
)
def test_no_error_about_files_shows_a_secret(config, credentials, botocore, write, request):
    if not botocore:
        request.getfixturevalue("_no_botocore")
    write(config, credentials)
    with pytest.raises(PenstockError) as caught:
        keys_of_resolved()
    assert MARK not in "".join(shown(caught.value))


@pytest.mark.parametrize(
    "text",
    [
        f"import sys; sys.exit('{MARK}')",
        f"print('{MARK}')",
        f'print(\'{{"Version": 1, "AccessKeyId": "{MARK}"}}\')',
        f'print(\'{{"Version": "{MARK}"}}\')',
    ],
)
def test_credential_process_error_hides_its_output(text, write, tmp_path):
    write(process(tmp_path, text))
    with pytest.raises(Unauthenticated, match="credential chain failed") as caught:
        keys(S3Options(profile="lab"))
    assert MARK not in "".join(shown(caught.value))


def test_container_service_error_hides_its_response(write, environment):
    write()
    answer = json.dumps({"AccessKeyId": MARK, "SecretAccessKey": MARK})
    with http({("GET", "/role"): (200, answer)}) as (url, _):
        environment(AWS_CONTAINER_CREDENTIALS_FULL_URI=f"{url}/role", AWS_CONTAINER_AUTHORIZATION_TOKEN=MARK)
        with pytest.raises(Unauthenticated) as caught:
            keys()
    assert MARK not in "".join(shown(caught.value))


@pytest.mark.parametrize(
    "variables",
    [
        {"AWS_ACCESS_KEY_ID": MARK},
        {"AWS_SECRET_ACCESS_KEY": MARK},
        {"AWS_ACCESS_KEY_ID": MARK, "AWS_SECRET_ACCESS_KEY": f"{MARK}\n"},
        {"AWS_SESSION_TOKEN": MARK},
        {"AWS_ENDPOINT_URL": f"https://{MARK}@host"},
        {"AWS_ENDPOINT_URL_S3": f"https://host?{MARK}"},
    ],
)
def test_no_error_about_the_environment_shows_a_secret(variables, environment):
    environment(**variables)
    with pytest.raises(PenstockError) as caught:
        keys_of_resolved()
    assert MARK not in "".join(shown(caught.value))


def test_no_repr_shows_a_secret(write):
    write(credentials=f"[lab]\naws_access_key_id = {MARK}\naws_secret_access_key = {MARK}\n")
    proxied = TransportOptions(proxy=f"http://{MARK}:{MARK}@proxy")
    options = S3Options(access_key=MARK, secret_key=MARK, session_token=MARK, transport=proxied)
    for each in (options, S3Options(profile="lab", transport=proxied)):
        chain = AmazonCredentials(each, os.environ)
        held = RefreshingCredentials(chain)
        current = held.current()
        assert (current.access_key, current.expires_at) == (MARK, None)
        assert MARK not in f"{each} {resolve(each)} {chain!r} {held!r} {held._state!r} {current!r} {vars(held)}"


def test_no_url_error_shows_a_secret():
    with pytest.raises(PenstockError) as caught:
        parse(f"s3://{MARK}:{MARK}@bucket/{MARK}")
    assert MARK not in "".join(shown(caught.value))
