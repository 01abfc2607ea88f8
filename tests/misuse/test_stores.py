"""Whatever is set wrongly, the error names the settings to change: in Python, in ``penstock ls``, in ``doctor``."""

from __future__ import annotations

import re
import sys
import time
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

import penstock as ps
from penstock import errors
from penstock.cli import main
from penstock.cli.options import Given, settle_store
from penstock.stores.gcs import driver as gcs_crc
from penstock.stores.oss import dialect as oss_crc
from penstock.testing.faults import FaultServer, Settings, dialect
from penstock.testing.servers import Scripted, reply
from tests.engine.transport.certificates import certified
from tests.misuse.stores import ROWS

WANTS_TLS = b"<html><head><title>400 The plain HTTP request was sent to HTTPS port</title></head></html>"
SOON = ("retry.first_contact_s=0.2", "retry.patience_s=1")  # gives up


@pytest.fixture(scope="module")
def servers(tmp_path_factory, ceph_server, azurite, nginx_server):
    folder = tmp_path_factory.mktemp("misuse")
    ca, context = certified(folder)
    (folder / "credentials").write_text("[default]\naccess_key_id = k\naccess_key_secret = s\n")
    ceph_server.client().create_bucket(Bucket="misused")
    azurite.client().create_container("misused")
    with ExitStack() as stack:
        faults = {}
        for name in ("s3", "gcs", "oss", "azure"):
            faults[name] = stack.enter_context(FaultServer.within(Settings(dialect=name)))
            faults[name].put("bucket", "a", b"x")

        def answering(*answer, tls=None, **headers):
            def send(_received, write):
                write(reply(*answer, **headers))
                return False

            return stack.enter_context(Scripted(send, tls)).url

        yield SimpleNamespace(
            faults=faults,
            tls=answering(200, tls=context),
            ca=str(ca),
            ini=str(folder / "credentials"),
            nginx=nginx_server.roots["index"].rstrip("/"),
            wants_tls=answering(400, WANTS_TLS),
            closed=nginx_server.roots["closed"],
            redirecting=answering(307, location="http://192.0.2.1:51080/"),
            ceph=ceph_server,
            ceph_bucket="misused",
            azurite=azurite,
            container="misused",
        )


@pytest.fixture
def said(request, servers, monkeypatch, tmp_path):
    """Bring about what a row says; returns it."""
    row = request.param
    monkeypatch.setattr(errors, "_aliases", {})  # of profiles: texts of later tests shall not have them
    found = row.said(servers)
    for name, value in found.environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    for name, text, file in (("PENSTOCK_CONFIG", found.toml, "p.toml"), ("MSC_CONFIG", found.msc, "m.yaml")):
        if text:
            (tmp_path / file).write_text(text)
            (tmp_path / file).chmod(0o600)
            monkeypatch.setenv(name, str(tmp_path / file))
    if row.missing:
        for each in (oss_crc, gcs_crc):
            each.library.cache_clear()
        for name in [each for each in sys.modules if f"{each}.".startswith(f"{row.missing}.")] or [row.missing]:
            monkeypatch.setitem(sys.modules, name, None)
    if row.ahead_s:
        clock = SimpleNamespace(time=lambda: time.time() + row.ahead_s, gmtime=time.gmtime, strftime=time.strftime)
        monkeypatch.setattr(dialect, "time", clock)
    row.begin(servers)
    yield found
    for server in servers.faults.values():
        server.heal()


def command(monkeypatch, capsys, *words):
    """Run a command line in this process; returns its exit code and both outputs."""
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["penstock", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def names(words, text):
    return [word for word in words if not re.search(word, text)]


@pytest.mark.ceph
@pytest.mark.parametrize(("row", "said"), [(row, row) for row in ROWS.values()], ids=list(ROWS), indirect=["said"])
def test_a_mistake_names_the_settings_to_change(row, said, monkeypatch, capsys):
    options = said.options if row.kind is None else (*said.options, *SOON)
    flags = [word for option in options for word in ("-o", option)]
    pairs = [(f"-o {name}", name, value) for name, _, value in (each.partition("=") for each in options)]
    code, out, err = command(monkeypatch, capsys, "ls", said.url, *flags)
    status, steps, _ = command(monkeypatch, capsys, "doctor", "--read-only", said.url, *flags)
    if row.kind is None:
        assert [each.key for each in ps.list(said.url, store=settle_store(Given("", tuple(pairs)), [said.url]))] == [
            "a"
        ]
        assert (code, status) == (0, 0)
        return
    with pytest.raises(row.kind) as raised:
        list(ps.list(said.url, store=settle_store(Given("", tuple(pairs)), [said.url])))
    assert names(row.words, str(raised.value)) == [], str(raised.value)
    assert code, out
    assert names(row.words, err) == [], err
    failed = "".join(line for line in steps.splitlines() if line.startswith("✗"))
    told = failed or err  # what is wrong with a URL or an option ends the command before the first step
    assert status, steps
    assert not row.step or failed.startswith(f"✗ {row.step}"), steps
    assert names(row.doctor or row.words, told) == [], steps
