"""Each preset: where its requests go, for which region they are signed, whose variables count, what its limits are."""

from __future__ import annotations

from dataclasses import replace

import pytest

import penstock as ps
from penstock.engine.contracts.driver import Attributes, Payload
from penstock.errors import ConfigError, InvalidURL, Unauthenticated
from penstock.source import open_source
from penstock.stores.s3.services import AWS, R2, SERVICES
from penstock.testing.faults import FaultServer, Settings
from penstock.testing.servers import Scripted, reply

PRESETS = {word: service for word, service in SERVICES.items() if type(service) is not AWS}
KEYS = {"access_key": "id", "secret_key": "secret"}
PART = 64 << 10

R2_HOST, B2_HOST = "https://acc.r2.cloudflarestorage.com", "https://s3.us-west-004.backblazeb2.com"
OCI_HOST = "https://ns.compat.objectstorage.{}.oci.customer-oci.com"
US, GOV = "us-east-1", "us-gov-west-1"

# URL, options, environment -> URL of the request, region of its signature.
CASES = [
    ("r2://bkt/k", {"account": "acc"}, {}, f"{R2_HOST}/bkt/k", "auto"),
    ("r2://bkt/k", {"account": "acc.eu"}, {}, "https://acc.eu.r2.cloudflarestorage.com/bkt/k", "auto"),
    ("r2://bkt/k", {}, {"CLOUDFLARE_ACCOUNT_ID": "acc"}, f"{R2_HOST}/bkt/k", "auto"),
    ("r2://bkt/k", {}, {"AWS_ENDPOINT_URL": R2_HOST, "AWS_REGION": "wnam"}, f"{R2_HOST}/bkt/k", "wnam"),
    ("r2://bkt/k", {"account": "acc"}, {"AWS_ENDPOINT_URL": "https://m", "AWS_REGION": US}, f"{R2_HOST}/bkt/k", "auto"),
    ("s3://bkt/k", {"provider": "r2", "account": "acc"}, {}, f"{R2_HOST}/bkt/k", "auto"),
    ("oci://bkt@ns/k", {"region": "eu-x-1"}, {}, f"{OCI_HOST.format('eu-x-1')}/bkt/k", "eu-x-1"),
    (
        "oci://bkt/k",
        {},
        {"OCI_NAMESPACE": "ns", "OCI_REGION": "us-x-1"},
        f"{OCI_HOST.format('us-x-1')}/bkt/k",
        "us-x-1",
    ),
    ("b2://bkt/k", {"region": "us-west-004"}, {}, f"{B2_HOST}/bkt/k", "us-west-004"),
    ("s3://bkt/k", {"endpoint": B2_HOST}, {"AWS_REGION": US}, f"{B2_HOST}/bkt/k", "us-west-004"),
    ("s3://bkt/k", {"provider": "wasabi"}, {}, "https://s3.us-east-1.wasabisys.com/bkt/k", US),
    ("s3://bkt/k", {"provider": "wasabi"}, {"AWS_REGION": "eu-1"}, "https://s3.eu-1.wasabisys.com/bkt/k", "eu-1"),
    ("tigris://bkt/k", {}, {}, "https://bkt.t3.storage.dev/k", "auto"),
    ("t3://bkt/k", {}, {}, "https://bkt.t3.storage.dev/k", "auto"),
    ("s3://bkt/k", {"provider": "coreweave"}, {}, "https://bkt.cwobject.com/k", US),
    ("s3://bkt/k", {"endpoint": "http://cwlota.com"}, {}, "http://bkt.cwlota.com/k", US),
    ("ais://bkt/k", {}, {"AIS_ENDPOINT": "http://gw:51080"}, "http://gw:51080/s3/bkt/k", US),
    ("ais://bkt/k", {"endpoint": "http://gw:51080/other"}, {}, "http://gw:51080/other/bkt/k", US),
    ("s3://bkt/k", {"provider": "minio"}, {"MINIO_ENDPOINT": "http://minio:9000"}, "http://minio:9000/bkt/k", US),
    ("s3://bkt/k", {"provider": "ceph", "endpoint": "http://rgw:8080"}, {}, "http://rgw:8080/bkt/k", US),
    ("s3://bkt/k", {"provider": "s8k", "endpoint": "https://s8k.example"}, {}, "https://s8k.example/bkt/k", US),
    ("s3://bkt/k", {"provider": "gcs"}, {}, "https://storage.googleapis.com/bkt/k", "auto"),
    (
        "s3://bkt/k",
        {"provider": "hf-buckets", "account": "My_Org.2"},
        {},
        "https://s3.hf.co/My_Org.2/bkt/k",
        US,
    ),
    ("s3://bkt/k", {"endpoint": "https://s3.hf.co/org"}, {}, "https://s3.hf.co/org/bkt/k", US),
    ("s3://bkt/k", {"provider": "aws"}, {}, "https://bkt.s3.us-east-1.amazonaws.com/k", US),
    ("s3://bkt/k", {"dual_stack": True}, {}, "https://bkt.s3.dualstack.us-east-1.amazonaws.com/k", US),
    (
        "s3://bkt/k",
        {"region": "cn-north-1"},
        {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
        "https://bkt.s3.dualstack.cn-north-1.amazonaws.com.cn/k",
        "cn-north-1",
    ),
    (
        "s3://bkt/k",
        {"fips": True, "dual_stack": True, "region": GOV},
        {},
        f"https://bkt.s3-fips.dualstack.{GOV}.amazonaws.com/k",
        GOV,
    ),
    ("s3://bkt/k", {}, {"AWS_USE_FIPS_ENDPOINT": "true"}, "https://bkt.s3-fips.us-east-1.amazonaws.com/k", US),
    ("s3://bkt/k", {"accelerate": True}, {}, "https://bkt.s3-accelerate.amazonaws.com/k", US),
    (
        "s3://bkt/k",
        {"accelerate": True, "dual_stack": True},
        {},
        "https://bkt.s3-accelerate.dualstack.amazonaws.com/k",
        US,
    ),
    ("s3://bkt/k", {"endpoint": "https://m"}, {"AWS_USE_FIPS_ENDPOINT": "true"}, "https://m/bkt/k", US),
]


@pytest.mark.parametrize(("url", "options", "environ", "at", "region"), CASES)
def test_where_requests_go_and_for_which_region_they_are_signed(url, options, environ, at, region, monkeypatch):
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    source, key = open_source(url, ps.S3Options(**KEYS, **options))
    driver = source._fetcher().driver
    request = driver.head(key).request
    assert request.url == at
    assert f"/{region}/s3/aws4_request" in " ".join(request.headers)
    assert driver.url(key) == url


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("r2://bkt/k", {}, r"Cloudflare R2 needs an account: pass S3Options\(account=…\) or set R2_ACCOUNT_ID"),
        ("r2://bkt/k", {"account": "evil.example/"}, "S3Options.account must be an account"),
        ("r2://bkt/k", {"provider": "b2"}, "provider='b2' contradicts the URL's scheme, which is Cloudflare R2's"),
        (
            "oci://bkt/k",
            {"region": "r"},
            r"write bkt@ACCOUNT for the bucket, pass S3Options\(account=…\) or set OCI_NAMESPACE",
        ),
        ("oci://bkt@ns/k", {}, r"needs a region: pass S3Options\(region=…\) or set OCI_REGION"),
        ("oci://bkt@a/k", {"region": "r", "account": "b"}, "the URL names the account 'a', and the endpoint is"),
        ("b2://bkt/k", {}, "Backblaze B2 needs a region"),
        ("ais://bkt/k", {}, r"AIStore has no default endpoint: pass S3Options\(endpoint=…\) or set AIS_ENDPOINT"),
        ("s3://bkt/k", {"provider": "hf-buckets"}, r"needs an account: pass S3Options\(account=…\)$"),
        ("s3://bkt/k", {"provider": "hf-buckets", "account": ".."}, "must be an account of Hugging Face"),
        ("s3://bkt/k", {"provider": "ceph"}, "Ceph has no default endpoint"),
        ("s3://bkt/k", {"provider": "coreweave", "addressing": "path"}, "needs the bucket in the host name"),
        (
            "s3://b_kt/k",
            {"provider": "coreweave"},
            "needs the bucket in the host name, but 'b_kt' is not valid there",
        ),
        ("s3://b.kt/k", {"accelerate": True}, "needs the bucket in the host name"),
        ("s3://bkt/k", {"accelerate": True, "fips": True}, "Transfer Acceleration has no FIPS endpoint"),
        ("s3://bkt/k", {"fips": True, "endpoint": "http://h"}, "S3Options.fips selects an endpoint of AWS"),
        ("r2://bkt/k", {"account": "a", "dual_stack": True}, "S3Options.dual_stack selects an endpoint of AWS"),
        ("s3://bkt/k", {"provider": "aw"}, "no provider 'aw': did you mean 'aws'"),
    ],
)
def test_missing_or_contradictory_option_is_named_in_error(url, options, message):
    with pytest.raises(ConfigError, match=message):
        open_source(url, ps.S3Options(**KEYS, **options))[0]._fetcher()


def test_directory_buckets_are_refused_with_a_word():
    with pytest.raises(InvalidURL, match=r"directory buckets .* list in no order"):
        ps.stat("s3://data--usw2-az1--x-s3/k")


def test_a_preset_reads_the_variables_of_its_community_and_not_awss(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "aws")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws secret")
    monkeypatch.setenv("R2_ACCOUNT_ID", "acc")
    with pytest.raises(
        Unauthenticated, match="no credentials for Cloudflare R2: looked in S3Options, R2_ACCESS_KEY_ID"
    ):
        ps.stat("r2://bkt/k")
    monkeypatch.setenv("R2_ACCESS_KEY_ID", "mine")
    monkeypatch.setenv("R2_SECRET_ACCESS_KEY", "secret")
    assert _signed_by("r2://bkt/k") == "mine"
    monkeypatch.delenv("R2_ACCESS_KEY_ID")
    monkeypatch.delenv("R2_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://acc.r2.cloudflarestorage.com")  # now AWS's mean this service
    assert _signed_by("r2://bkt/k") == _signed_by("s3://bkt/k") == "aws"


def _signed_by(url):
    driver = open_source(url)[0]._fetcher().driver
    driver.prepare()
    return " ".join(driver.head("k").request.headers).partition("Credential=")[2].partition("/")[0]


@pytest.fixture
def service(monkeypatch):
    """Return a server that `r2://` finds."""
    with FaultServer.within(Settings(region="auto", least_part_bytes=PART)) as server:
        monkeypatch.setenv("R2_ENDPOINT_URL", server.endpoint)
        monkeypatch.setenv("R2_ACCESS_KEY_ID", server.settings.access_key)
        monkeypatch.setenv("R2_SECRET_ACCESS_KEY", server.settings.secret_key)
        server.make("bucket")
        yield server


def test_advice_names_the_services_own_variables(service, monkeypatch):
    monkeypatch.setenv("R2_ACCESS_KEY_ID", "unknown")
    with pytest.raises(Unauthenticated) as caught:
        ps.list("r2://bucket/").__next__()
    assert "check the credentials (access_key= or R2_ACCESS_KEY_ID); see help(penstock.credentials)" in str(
        caught.value
    )
    monkeypatch.setenv("R2_ACCESS_KEY_ID", service.settings.access_key)
    with pytest.raises(ConfigError, match="pass region='auto' or set R2_REGION") as caught:
        next(ps.list("r2://bucket/", store=ps.S3Options(region="wnam", retry=ps.RetryOptions(attempts=1))))
    assert "AWS" not in str(caught.value)


@pytest.mark.parametrize("equal", [True, False])
def test_parts_stay_equal_where_the_service_wants_it_however_many_there_are(service, equal, monkeypatch):
    class Small(R2):
        limits = replace(R2.limits, least_part_bytes=PART, most_parts=30, equal_parts=equal)

    monkeypatch.setattr("penstock.stores.urls._loaded", {"r2": Small()})

    parts = ps.StoreOptions(write=ps.WriteOptions(part_bytes=PART, buffer_bytes=4 * PART))
    assert R2.limits.equal_parts, "and not only here"
    with ps.open("r2://bucket/k", "wb", store=parts) as file:
        for _ in range(12):  # with 30 parts at most, sizes double after each second one
            file.write(bytes(PART))
    sizes = [int(seen.headers["content-length"]) for seen in service.seen("part")]
    assert (len({*sizes[:-1]}) == 1) is equal
    assert sum(sizes) == len(service.objects("bucket")["k"]) == 12 * PART


def test_a_preset_asks_for_no_checksums_where_its_store_refuses_them():
    for word, preset in PRESETS.items():
        name, spoken = preset.name, _opened(word)._dialect
        refusing = ("Backblaze B2", "AIStore", "SwiftStack", "Google Cloud Storage's S3 interoperability")
        refused = name in (*refusing, "Hugging Face Storage Buckets")
        assert bool(spoken.whole_headers) is not refused, name


def test_conditions_are_not_sent_where_they_are_refused_or_ignored():
    new = Attributes(create_only=True)
    for word, preset in PRESETS.items():
        driver = _opened(word)
        sent = "if-none-match: *" in driver.put("k", Payload(b"x"), new).request.headers
        assert sent is (preset.abilities.form != "none"), word


def _opened(word):
    options = {"provider": word, "region": "r-1", **KEYS}
    if word in ("minio", "ceph", "s8k", "ais"):
        options["endpoint"] = "http://server:9000"
    if word in ("r2", "oci", "hf-buckets"):
        options["account"] = "acc"
    return open_source("s3://bkt/k", ps.S3Options(**options))[0]._fetcher().driver


def test_hf_buckets_gateway_is_asked_for_the_bytes_themselves():
    with Scripted(lambda _, send: send(reply(200, b"bytes", etag='"a"')) or True) as gateway:
        options = ps.S3Options(
            provider="hf-buckets", endpoint=gateway.url, transport=ps.TransportOptions(user_agent_extra="job7"), **KEYS
        )
        assert ps.open("s3://bkt/k", store=options).read() == b"bytes"
        agents = {each.headers["user-agent"] for each in gateway.received}
    assert len(agents) == 1
    assert agents.pop().endswith(" job7 like botocore")


class TestAistore:
    """A gateway sends each request for an object on to the server that has it."""

    def _cluster(self, status=307, members=(), where="http://127.0.0.1:{port}{path}?pid=t1&utm=17%2B4"):
        def target(received, send):
            send(reply(206 if "range" in received.headers else 200, b"bytes", etag='"a"', content_range="bytes 0-4/9"))
            return True

        def gateway(received, send):
            port = self.target.url.rpartition(":")[2]
            send(reply(status, b"", location=where.format(port=port, path=received.path.partition("?")[0])))
            return True

        self.target, self.gateway = Scripted(target), Scripted(gateway)
        return self.target, self.gateway, {"cluster": members}

    @pytest.mark.parametrize("status", [301, 302, 307])
    def test_its_redirect_is_followed_with_its_query(self, status):
        target, gateway, _ = self._cluster(status)
        with target, gateway:
            source, key = open_source("ais://bkt/a b", ps.S3Options(endpoint=gateway.url, **KEYS))
            span = ps_span(key, 0, 5)
            assert source.read(span) == b"bytes"
            (seen,) = target.received
            assert seen.path == "/s3/bkt/a%20b?pid=t1&utm=17%2B4"
            assert f"Credential={KEYS['access_key']}/" in seen.headers["authorization"]
            assert source.read(span) == b"bytes"
            assert (len(gateway.received), len(target.received)) == (2, 2)

    def test_a_body_is_sent_to_the_target_only(self):
        target, gateway, _ = self._cluster()
        with target, gateway:
            source, key = open_source("ais://bkt/k", ps.S3Options(endpoint=gateway.url))
            source.put(key, b"x" * 100_000)
            assert [len(each.body) for each in target.received] == [100_000]
            assert "authorization" not in target.received[0].headers, "without keys requests go unsigned"

    def test_a_token_goes_to_the_gateway_and_its_targets(self, monkeypatch):
        monkeypatch.setenv("AIS_AUTHN_TOKEN", "jwt-of-mine")
        target, gateway, _ = self._cluster()
        with target, gateway:
            source, key = open_source("ais://bkt/k", ps.S3Options(endpoint=gateway.url))
            assert source.read(ps_span(key, 0, 5)) == b"bytes"
            assert {each.headers["authorization"] for each in (*gateway.received, *target.received)} == {
                "Bearer jwt-of-mine"
            }

    def test_a_token_is_not_sent_unencrypted_to_another_machine(self, monkeypatch):
        monkeypatch.setenv("AIS_AUTHN_TOKEN", "jwt-of-mine")
        with pytest.raises(
            ConfigError, match="AIS_AUTHN_TOKEN would be sent to http://gw:51080/s3 unencrypted"
        ) as caught:
            open_source("ais://bkt/k", ps.S3Options(endpoint="http://gw:51080"))[0]._fetcher()
        assert "jwt-of-mine" not in str(caught.value)
        assert open_source("ais://bkt/k", ps.S3Options(endpoint="https://gw:51080"))[0]._fetcher()

    @pytest.mark.parametrize(
        "where",
        ["http://8.8.8.8:51081{path}", "http://evil.example:51081{path}", "http://127.0.0.1:{port}/s3/bkt/other"],
    )
    def test_another_cluster_or_another_object_is_not_followed(self, where):
        target, gateway, _ = self._cluster(where=where)
        with target, gateway:
            source, key = open_source("ais://bkt/k", ps.S3Options(endpoint=gateway.url))
            with pytest.raises(ConfigError, match="outside of its cluster: name it in S3Options"):
                source.read(ps_span(key, 0, 5))
            assert not target.received

    def test_other_servers_are_followed_where_they_are_named(self):
        target, gateway, _ = self._cluster(where="http://localhost:{port}{path}")
        with target, gateway:
            for cluster, followed in (((), False), (("localhost",), True), (("10.0.0.0/8",), False)):
                source, key = open_source("ais://bkt/k", ps.S3Options(endpoint=gateway.url, cluster=cluster))
                if followed:
                    assert source.read(ps_span(key, 0, 5)) == b"bytes"
                else:
                    with pytest.raises(ConfigError):
                        source.read(ps_span(key, 0, 5))
        with pytest.raises(ConfigError, match="cluster must be hosts, domains and networks"):
            ps.S3Options(cluster=("http://h",))

    def test_a_gateway_that_redirects_for_ever_is_given_up(self):
        def round_and_round(received, send):
            send(reply(307, b"", location=f"http://127.0.0.1:{int(gateway.url.rpartition(':')[2])}{received.path}?n=1"))
            return True

        with Scripted(round_and_round) as gateway:
            source, key = open_source("ais://bkt/k", ps.S3Options(endpoint=gateway.url))
            with pytest.raises(ConfigError):
                source.read(ps_span(key, 0, 5))
            assert len(gateway.received) <= 66


def ps_span(key, start, stop):
    from penstock.values import Span

    return Span(key, start, stop)


def test_a_bucket_in_the_hosts_name_works_on_a_server(moto_server):
    name = "virtual-only"
    moto_server.client().create_bucket(Bucket=name)
    endpoint = moto_server.endpoint.replace("127.0.0.1", "localhost")
    keys = {"access_key": moto_server.access_key, "secret_key": moto_server.secret_key}
    store = ps.S3Options(provider="coreweave", endpoint=endpoint, **keys)
    with ps.open(f"s3://{name}/a b", "wb", store=store) as file:
        file.write(b"in the host")
    assert ps.open(f"s3://{name}/a b", store=store).read() == b"in the host"
    source, key = open_source(f"s3://{name}/a b", store)
    assert source._fetcher().driver.head(key).request.url.startswith(f"http://{name}.localhost:")
    assert moto_server.client().get_object(Bucket=name, Key="a b")["Body"].read() == b"in the host"
