"""A user's function and a process that prints JSON give credentials; what they say elsewhere is never quoted."""

import json
import os
import pickle
import sys
import threading
from pathlib import Path

import pytest

import penstock as ps
from penstock.engine.contracts.credentials import BearerToken, Credentials
from penstock.errors import Throttled, Unauthenticated, Unreachable, Unusable
from penstock.stores.credentials import RefreshingCredentials, call_provider, run_credential_program
from penstock.stores.s3.credentials import AmazonCredentials
from tests.edges.launch import program

AWS = {"Version": 1, "AccessKeyId": "AKIA", "SecretAccessKey": "hush/hush+1"}


def says(said) -> tuple[str, ...]:
    return sys.executable, "-S", "-c", f"print({said if isinstance(said, str) else json.dumps(said)!r})"


@pytest.mark.parametrize(
    ("said", "found"),
    [
        (AWS, Credentials("AKIA", "hush/hush+1")),
        (
            AWS | {"SessionToken": "t", "Expiration": "2030-01-02T03:04:05Z"},
            Credentials("AKIA", AWS["SecretAccessKey"], "t", 1893553445.0),
        ),
        (AWS | {"Expiration": "2030-01-02T03:04:05+01:00"}, Credentials("AKIA", "hush/hush+1", "", 1893549845.0)),
        (AWS | {"Expiration": "2030-01-02T03:04:05"}, Credentials("AKIA", "hush/hush+1", "", 1893553445.0)),
        ({"access_key": "a", "secret_key": "b", "token": "t", "expires_at": 9}, Credentials("a", "b", "t", 9.0)),
        ({"AccessKeyId": "a", "AccessKeySecret": "b", "SecurityToken": "t"}, Credentials("a", "b", "t")),
        ({"access_key": "a", "secret_key": "b", "comment": 3}, Credentials("a", "b")),
        (AWS | {"SessionToken": None, "Expiration": None}, Credentials("AKIA", "hush/hush+1")),
    ],
    ids=range(8),
)
def test_credentials_printed_by_a_process_are_parsed(said, found):
    keys = run_credential_program(says(said), os.environ, Credentials)
    assert (keys, keys.expires_at) == (found, found.expires_at)
    assert keys.found_in == f"the credentials process {Path(sys.executable).name!r}"
    assert "hush" not in repr(keys)


def test_a_bearer_token_is_read():
    assert run_credential_program(says({"token": "hush", "expires_at": 9}), {}, BearerToken) == BearerToken("hush", 9.0)
    with pytest.raises(Unauthenticated, match="keys instead of a bearer token"):
        run_credential_program(says(AWS | {"SessionToken": "t"}), {}, BearerToken)


def test_a_text_is_split_as_a_shell_does_and_no_shell_runs():
    script = "import json, sys; print(json.dumps(dict(access_key='a', secret_key=sys.argv[1])))"
    words = f'{sys.executable} -S -c "{script}" "$HOME;x"'.replace(" $HOME", "$HOME").replace('"$HOME;x"', "'$HOME;x'")
    assert run_credential_program(words, os.environ, Credentials).secret_key == "$HOME;x"


def test_the_environment_is_the_one_that_was_named():
    script = "import json, os; print(json.dumps(dict(access_key='a', secret_key=os.environ['WHO'])))"
    assert run_credential_program((sys.executable, "-S", "-c", script), {"WHO": "me"}, Credentials).secret_key == "me"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("/nowhere/hush-helper",), "cannot be run: No such file or directory"),
        (("a\0b",), "cannot be run: it holds a NUL"),
        ((sys.executable, "-S", "-c", "import sys; print('hushhush'); sys.exit('hushhush')"), "ended with status 1"),
        (says("'hushhush'"), "is not a JSON object"),
        (says("[1]"), "is not a JSON object"),
        (says("'[' * 100000"), "is not a JSON object"),
        ((sys.executable, "-S", "-c", "print('hushhush' * (1 << 20))"), "printed more than 1 MiB"),
        (says(AWS | {"Version": 2}), "printed a Version different from 1"),
        (says({"AccessKeyId": "hushhush"}), "printed no pair of keys"),
        (says(AWS | {"SecretAccessKey": "hush hush\n"}), "a str of visible ASCII characters"),
        (says(AWS | {"SecretAccessKey": 3}), "SecretAccessKey or AccessKeySecret or secret_key, which must be a str"),
        (says(AWS | {"Expiration": "hushhush"}), "must be ISO 8601 or seconds"),
        (says(AWS | {"Expiration": True}), "must be ISO 8601 or seconds"),
    ],
    ids=range(13),
)
def test_failed_credential_process_is_reported_without_its_output(command, told):
    with pytest.raises(Unauthenticated) as refused:
        run_credential_program(command, os.environ, Credentials)
    assert told in str(refused.value)
    assert "hushhush" not in str(refused.value)
    assert refused.value.__cause__ is refused.value.__context__ is None


def test_a_process_that_hangs_is_ended():
    with pytest.raises(Unreachable, match=r"did not end within 0.2 s"):
        run_credential_program((sys.executable, "-S", "-c", "import time; time.sleep(60)"), {}, Credentials, 0.2)


def keys() -> Credentials:
    return Credentials("AKIA", "hush")


def fails() -> Credentials:
    raise ValueError("hushhush")


def throttled() -> Credentials:
    raise Throttled("later")


def test_a_function_is_asked_and_its_failures_are_not_quoted():
    assert call_provider(keys, Credentials) == keys()
    with pytest.raises(Unauthenticated, match="fails, raised ValueError") as refused:
        call_provider(fails, Credentials)
    assert refused.value.__cause__ is refused.value.__context__ is None
    for wrong, kind in (
        (lambda: None, "nothing"),
        (lambda: ("a", "hush"), "a tuple"),
        (lambda: BearerToken("x"), "a Be"),
    ):
        with pytest.raises(Unauthenticated, match=f"and returned {kind}"):
            call_provider(wrong, Credentials)
    with pytest.raises(Throttled, match="later"):
        call_provider(throttled, Credentials)


def test_a_function_and_a_process_come_before_the_environment():
    environ = {"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "other"}
    assert AmazonCredentials(ps.S3Options(credentials=keys), environ).load() == keys()
    process = ps.S3Options(credentials_process=says(AWS))
    assert AmazonCredentials(process, environ).load() == Credentials("AKIA", "hush/hush+1")
    assert AmazonCredentials(process, {"AWS_NO_SIGN_REQUEST": "yes"}).load() is not None


def test_they_are_asked_again_before_they_expire_and_on_callers_threads():
    threads = []

    def rotating():
        threads.append(threading.current_thread())
        return Credentials(f"key-{len(threads)}", "hush", expires_at=1000.0 * len(threads))

    clock = [0.0]
    identity = RefreshingCredentials(AmazonCredentials(ps.S3Options(credentials=rotating), {}), lambda: clock[0])
    for moment, number in ((0.0, 1), (699.0, 1), (701.0, 2), (1500.0, 2), (1701.0, 3)):
        clock[0] = moment
        identity.refresh_if_due()
        assert identity.current().access_key == f"key-{number}"
    assert set(threads) == {threading.current_thread()}


TRAINING = """
import sys
import penstock as ps

def keys():
    return ps.credentials.Credentials("testing", "testing")

def data(sample):
    return bytes(sample.data)

if __name__ == "__main__":
    endpoint, bucket = sys.argv[1:]
    helper = (sys.executable, "-S", "-c", "print('{\\"access_key\\": \\"testing\\", \\"secret_key\\": \\"testing\\"}')")
    for store, how in (
        (ps.S3Options(endpoint=endpoint, credentials=keys), "spawn"),
        (ps.S3Options(endpoint=endpoint, credentials_process=helper), "fork"),
    ):
        with ps.open(f"{bucket}x", "wb", store=store) as file:
            file.write(b"x")
        dataset = ps.MapDataset.from_prefix(bucket, transform=data, store=store)
        loader = ps.DataLoader(dataset, batch_size=1, num_workers=1, multiprocessing_context=how, collate_fn=list)
        assert list(loader) == [[b"x"]]
"""


def test_workers_ask_for_themselves(moto_server, tmp_path):
    moto_server.client().create_bucket(Bucket="external")
    (tmp_path / "training.py").write_text(TRAINING)
    told = program(tmp_path / "training.py", moto_server.endpoint, "s3://external/")
    assert told.returncode == 0, told


def test_a_function_that_no_worker_finds_is_refused_with_the_remedy():
    nameless = ps.S3Options(credentials=lambda: Credentials("a", "b"))
    with pytest.raises(
        Unusable, match=r"credentials=.*<lambda> cannot be sent to a worker: name a function that a module"
    ):
        pickle.dumps(nameless)
    assert pickle.loads(pickle.dumps(ps.S3Options(credentials=keys))).credentials is keys
    with pytest.raises(Unusable, match="with a secret in it"):
        pickle.dumps(ps.S3Options(credentials_process=("helper", "--password=hush")))
