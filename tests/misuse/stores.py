"""What is set wrongly where a store is named: each row is one mistake, and the settings that its text has to name.

A row sets only what a user sets: environment variables, a profile, ``-o`` options. The servers are real ones, or the
fault server, which checks the signatures of all four dialects.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    ConfigError,
    Denied,
    Forbidden,
    MissingExtra,
    NotFound,
    PenstockError,
    Unauthenticated,
    Unreachable,
)
from penstock.testing.faults import Match
from penstock.testing.faults.script import FAULTS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ROWS", "Row", "Said"]

S3, GCS, AZURE, OSS = "AWS_ENDPOINT_URL", "STORAGE_EMULATOR_HOST", "AZURE_STORAGE_ENDPOINT", "OSS_ENDPOINT"
AZURE_KEY = "AZURE_STORAGE_ACCOUNT_KEY"
HMAC = {"GCS_KEY": "k", "GCS_SECRET": "s"}
KEYS = {
    "s3": {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"},
    "gs": HMAC,
    "az": {"AZURE_STORAGE_ACCOUNT_NAME": "account", AZURE_KEY: "c2VjcmV0"},
    "oss": {"OSS_ACCESS_KEY_ID": "k", "OSS_ACCESS_KEY_SECRET": "s", "OSS_REGION": "cn-hangzhou"},
    "https": {},
}
ENDPOINTS = {"s3": S3, "gs": GCS, "az": AZURE, "oss": OSS}
CA = ("ca_file=", "SSL_CERT_FILE")


@dataclass(frozen=True)
class Said:
    """What a user says: a URL, the environment, options, and the text of ``penstock.toml`` or of MSC's file."""

    url: str
    environ: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    toml: str = ""
    msc: str = ""


@dataclass(frozen=True)
class Row:
    """One mistake.

    Attributes:
        name: Of the test.
        said: What a user says, of the servers.
        kind: The error; None where it works all the same.
        words: Patterns that the text has: options and environment variables above all.
        step: Where ``doctor`` fails; empty for any step.
        doctor: Patterns of doctor's text, where they are others.
        refused: A server (its dialect), and the status and the code that it refuses everything with.
        ahead_s: How far the servers' clocks are ahead.
        missing: A library that is not installed.
    """

    name: str
    said: Callable[[Any], Said]
    kind: type[PenstockError] | None
    words: tuple[str, ...] = ()
    step: str = ""
    doctor: tuple[str, ...] = ()
    refused: tuple[str, int, str] = ("", 0, "")
    ahead_s: float = 0.0
    missing: str = ""

    def begin(self, servers: Any) -> None:
        """Have the server refuse what it is to refuse."""
        dialect, status, code = self.refused
        if dialect:
            fault = replace(FAULTS["denied"], status=status, code=code)
            servers.faults[dialect].fail(fault, when=Match(times=None))


def at(dialect: str, **more: str) -> Callable[[Any], Said]:
    """Say what is right, on a fault server, but for ``more``; an empty value takes a variable away."""

    def said(servers: Any) -> Said:
        server = servers.faults[dialect]
        environ = {name: value for name, value in {**server.environment, **more}.items() if value}
        return Said(f"{server.scheme}://bucket/", environ)

    return said


def named(url: str, environ: Mapping[str, str] | None = None, *options: str, **texts: str) -> Callable[[Any], Said]:
    """Say this, whatever the servers are."""
    return lambda _servers: Said(url, environ or {}, options, **texts)


def _mistyped(dialect: str) -> Callable[[Any], Said]:
    return lambda servers: replace(at(dialect)(servers), url=f"{servers.faults[dialect].scheme}://buckett/")


def _endpoint(scheme: str, where: Callable[[Any], str], *options: str, **more: str) -> Callable[[Any], Said]:
    """Say that a provider's server is there."""

    def said(servers: Any) -> Said:
        url, extra = where(servers), {name: getattr(servers, value) for name, value in more.items()}
        if scheme == "https":
            return Said(f"{url}/a", extra, options)
        endpoint = f"{url}/account" if scheme == "az" else url
        return Said(f"{scheme}://bucket/", {**KEYS[scheme], **extra, ENDPOINTS[scheme]: endpoint}, options)

    return said


def _ceph(bucket: str = "", **more: str) -> Callable[[Any], Said]:
    return lambda servers: Said(f"s3://{bucket or servers.ceph_bucket}/", {**servers.ceph.environment, **more})


def _azurite(container: str = "", **more: str) -> Callable[[Any], Said]:
    def said(servers: Any) -> Said:
        account = servers.azurite
        named = {"AZURE_STORAGE_ACCOUNT_NAME": account.name, AZURE: account.endpoint, AZURE_KEY: account.key}
        environ = {name: value for name, value in {**named, **more}.items() if value}
        return Said(f"az://{container or servers.container}/", environ)

    return said


def _bearer(scheme: str, kind: str) -> Callable[[Any], Said]:
    """Use a profile with a token that the server does not take, or not any longer."""

    def said(servers: Any) -> Said:
        server = servers.faults[kind]
        where = f"{server.endpoint}/account" if scheme == "az" else server.endpoint
        options = {"endpoint": where, "token": "${OLD_TOKEN}"} | ({"account": "account"} if scheme == "az" else {})
        lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in options.items())
        toml = f'[profiles.p]\nurl = "{scheme}://bucket/"\n[profiles.p.options]\n{lines}'
        return Said("penstock://p/", {"OLD_TOKEN": "an-old-token"}, toml=toml)

    return said


def _local(scheme: str, *options: str, bucket: str = "bucket", **environ: str) -> Callable[[Any], Said]:
    """Say this and that the server is here: ``doctor`` looks for a host before it looks for credentials."""
    kind = {"gs": "gcs", "az": "azure"}.get(scheme, scheme)

    def said(servers: Any) -> Said:
        return Said(f"{scheme}://{bucket}/", environ, (f"endpoint={servers.faults[kind].endpoint}", *options))

    return said


PROFILES = (
    Row("profile-option", named("s3://bucket/", {}, "profile=nope"), ConfigError, ("'nope'", "profile=")),
    Row("profile-variable", named("s3://bucket/", {"AWS_PROFILE": "nope"}), ConfigError, ("'nope'", "AWS_PROFILE")),
    Row("penstock-none", named("penstock://nope/"), ConfigError, (r"penstock\.toml", "PENSTOCK_CONFIG")),
    Row(
        "penstock-other",
        named("penstock://nop/", toml='[profiles.nope]\nurl = "s3://bucket/"\n'),
        ConfigError,
        ("did you mean 'nope'",),
    ),
    Row("msc-none", named("msc://nope/"), ConfigError, ("no profile 'nope'", "MSC_CONFIG")),
    Row(
        "provider-mistyped",
        named("s3://bucket/", {}, "provider=mino"),
        ConfigError,
        ("provider", "did you mean 'minio'"),
    ),
    Row(
        "google-file",
        _local("gs", GOOGLE_APPLICATION_CREDENTIALS="/none"),
        ConfigError,
        ("GOOGLE_APPLICATION_CREDENTIALS",),
    ),
    Row("google-file-option", _local("gs", "credentials_file=/none"), ConfigError, ("credentials_file",)),
    Row(
        "azure-string",
        named("az://bucket/", {"AZURE_STORAGE_CONNECTION_STRING": "x"}),
        ConfigError,
        ("AZURE_STORAGE_CONNECTION_STRING",),
    ),
    Row("azure-key", named("az://bucket/", {**KEYS["az"], AZURE_KEY: "no base64"}), ConfigError, (AZURE_KEY,)),
    Row(
        "alibaba-file",
        _local("oss", OSS_REGION="cn-hangzhou", ALIBABA_CLOUD_CREDENTIALS_FILE="/none"),
        ConfigError,
        ("ALIBABA_CLOUD_CREDENTIALS_FILE",),
    ),
    Row(
        "alibaba-profile",
        lambda servers: _local(
            "oss", OSS_REGION="x", ALIBABA_CLOUD_CREDENTIALS_FILE=servers.ini, ALIBABA_CLOUD_PROFILE="nope"
        )(servers),
        ConfigError,
        ("ALIBABA_CLOUD_PROFILE", "'nope'"),
    ),
)

MISSING = (
    Row("google-auth", _local("gs"), MissingExtra, (r"penstock\[gcs\]",), missing="google.auth"),
    Row("google-crc", _local("gs", bucket="without", **HMAC), MissingExtra, (r"penstock\[gcs\]",), missing="fastcrc"),
    Row(
        "oss-crc",
        _local("oss", bucket="without", **KEYS["oss"]),
        MissingExtra,
        (r"penstock\[oss\]",),
        missing="fastcrc",
    ),
    Row(
        "azure-identity",
        _local("az", AZURE_STORAGE_ACCOUNT_NAME="account"),
        MissingExtra,
        (r"penstock\[azure\]", AZURE_KEY),
        missing="azure.identity",
    ),
    Row(
        "botocore",
        lambda servers: Said("s3://bucket/", {S3: servers.faults["s3"].endpoint}),
        Unauthenticated,
        (r"penstock\[s3\]", "AWS_ACCESS_KEY_ID"),
        missing="botocore.session",
    ),
    Row("fsspec", named("fsspec+memory://a/"), MissingExtra, (r"penstock\[fsspec\]",), missing="fsspec"),
    Row("yaml", named("msc://p/", msc="profiles: {}\n"), MissingExtra, (r"penstock\[msc\]",), missing="yaml"),
)

EXPIRED = (
    Row(
        "s3",
        at("s3"),
        Unauthenticated,
        ("expired", "access_key= or AWS_ACCESS_KEY_ID", "AWS_PROFILE"),
        "list",
        refused=("s3", 400, "ExpiredToken"),
    ),
    Row("gcs", _bearer("gs", "gcs"), Unauthenticated, ("GOOGLE_APPLICATION_CREDENTIALS", "token="), "list"),
    Row("azure", _bearer("az", "azure"), Unauthenticated, ("expired", "token=", "AZURE_CLIENT_ID"), "list"),
    Row(
        "oss",
        at("oss", OSS_SESSION_TOKEN="old-token"),
        Unauthenticated,
        ("expired", "session_token= or OSS_SESSION_TOKEN"),
        "list",
    ),
    Row(
        "azurite-sas",
        _azurite(
            AZURE_STORAGE_ACCOUNT_KEY="",
            AZURE_STORAGE_SAS_TOKEN=("sv=2023-11-03&ss=b&srt=co&sp=rl&se=2020-01-01T00%3A00%3A00Z&sig=c2lnbmF0dXJl"),
        ),
        Denied,
        ("sas_token= or AZURE_STORAGE_SAS_TOKEN",),
        "list",
    ),
)

CLOCKS = tuple(
    Row(dialect, at(dialect), Unauthenticated, ("clock",), "list", ahead_s=3600.0)
    for dialect in ("s3", "gcs", "oss", "azure")
)

KEYS_WRONG = (
    Row(
        "ceph-secret",
        _ceph(AWS_SECRET_ACCESS_KEY="another"),
        Unauthenticated,
        ("SignatureDoesNotMatch", "access_key= or AWS_ACCESS_KEY_ID", "profile= or AWS_PROFILE"),
        "list",
    ),
    Row("ceph-id", _ceph(AWS_ACCESS_KEY_ID="another"), Unauthenticated, ("AWS_ACCESS_KEY_ID",), "list"),
    Row(
        "azurite-key",
        _azurite(AZURE_STORAGE_ACCOUNT_KEY="c2VjcmV0"),
        Denied,
        ("account_key= or AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCOUNT_NAME"),
        "list",
    ),
    Row("gcs", at("gcs", GCS_SECRET="another"), Unauthenticated, ("secret_key=", "GCS_SECRET"), "list"),
    Row(
        "oss",
        at("oss", OSS_ACCESS_KEY_SECRET="another"),
        Unauthenticated,
        ("access_key= or OSS_ACCESS_KEY_ID",),
        "list",
    ),
    Row("web", lambda servers: Said(servers.closed), Unauthenticated, ("token=", "username="), "list"),
    Row("half-a-pair", at("s3", AWS_SECRET_ACCESS_KEY=""), ConfigError, ("AWS_SECRET_ACCESS_KEY",)),
)

REGIONS = (
    Row("s3-malformed", at("s3", AWS_REGION="no region"), ConfigError, ("AWS_REGION",)),
    Row("s3-another", at("s3", AWS_REGION="eu-west-9"), None),  # the answer names the right one, which is followed
    Row(
        "s3-not-named",
        at("s3"),
        ConfigError,
        ("region= or set AWS_REGION",),
        "list",
        refused=("s3", 301, "PermanentRedirect"),
    ),
    Row(
        "s3-illegal",
        at("s3"),
        ConfigError,
        ("region= or set AWS_REGION",),
        "list",
        refused=("s3", 400, "IllegalLocationConstraintException"),
    ),
    Row("oss-none", named("oss://bucket/", {}), ConfigError, ("region=", "OSS_REGION")),
    Row("oss-another", at("oss", OSS_REGION="cn-nowhere"), None),
    Row(
        "oss-cname", at("oss"), ConfigError, ("endpoint= or OSS_ENDPOINT",), "list", refused=("oss", 403, "CnameDenied")
    ),
    Row(
        "oss-domain",
        at("oss"),
        ConfigError,
        ("addressing='cname'", "endpoint= or OSS_ENDPOINT"),
        "list",
        refused=("oss", 400, "PublicEndpointForbidden"),
    ),
    Row(
        "azure-another",
        at("azure"),
        ConfigError,
        ("endpoint= or AZURE_STORAGE_ENDPOINT",),
        "list",
        refused=("azure", 421, "Misdirected"),
    ),
    Row("b2-none", named("b2://bucket/", {}), ConfigError, ("region=", "B2_REGION")),
    Row("oci-none", named("oci://bucket/", {"OCI_NAMESPACE": "n"}), ConfigError, ("region=", "OCI_REGION")),
    Row("minio-none", named("s3://bucket/", {}, "provider=minio"), ConfigError, ("endpoint=", "MINIO_ENDPOINT")),
    Row("ais-none", named("ais://bucket/", {}), ConfigError, ("endpoint=", "AIS_ENDPOINT")),
    Row(
        "ais-elsewhere",
        lambda servers: Said("ais://bucket/", {"AIS_ENDPOINT": servers.redirecting}),
        ConfigError,
        ("cluster",),
        "list",
    ),
)

ADDRESSING = (
    Row(
        "oss-refuses-path",
        at("oss"),
        ConfigError,
        ("addressing=",),
        "list",
        refused=("oss", 403, "SecondLevelDomainForbidden"),
    ),
    Row(
        "coreweave",
        named("s3://bucket/", KEYS["s3"], "provider=coreweave", "addressing=path"),
        ConfigError,
        ("addressing=",),
    ),
    Row("coreweave-name", named("s3://Bucket_1/", KEYS["s3"], "provider=coreweave"), ConfigError, ("Bucket_1",)),
    Row(
        "bucket-twice",
        named("s3://bucket/", {**KEYS["s3"], S3: "https://127.0.0.1:1/bucket"}),
        ConfigError,
        ("name it only in",),
    ),
)

TLS = tuple(
    row
    for scheme in ("s3", "gs", "az", "oss", "https")
    for setting in [ENDPOINTS.get(scheme, "the URL")]
    for row in (
        Row(f"{scheme}-self-signed", _endpoint(scheme, lambda servers: servers.tls), ConfigError, CA, "TLS"),
        Row(
            f"{scheme}-another-name",
            _endpoint(scheme, lambda servers: servers.tls.replace("127.0.0.1", "localhost"), SSL_CERT_FILE="ca"),
            ConfigError,
            (f"check .*{setting}",),
            "TLS",
        ),
        Row(
            f"{scheme}-no-tls-there",
            _endpoint(scheme, lambda servers: servers.nginx.replace("http:", "https:")),
            ConfigError,
            (f"write http:// in .*{setting}",),
            "TLS",
        ),
        Row(
            f"{scheme}-tls-there",
            _endpoint(scheme, lambda servers: servers.tls.replace("https:", "http:")),
            Unreachable,
            (f"write https:// in .*{setting}",),
            "TLS",
        ),
        Row(
            f"{scheme}-tls-there-says-nginx",
            _endpoint(scheme, lambda servers: servers.wants_tls, "transport.connect_timeout_s=1"),  # doctor tries TLS
            ConfigError,
            (f"write https:// in .*{setting}",),
        ),
        Row(
            f"{scheme}-no-such-host",
            _endpoint(scheme, lambda _servers: "https://nothing.invalid"),
            Unreachable,
            (f"check .*{setting}",),
            "name resolution",
        ),
        Row(
            f"{scheme}-nobody-listens",
            _endpoint(scheme, lambda _servers: "http://127.0.0.1:9"),
            Unreachable,
            (f"check .*{setting}",),
            "connection",
        ),
    )
)

PAYERS = (
    Row(
        "s3",
        at("s3"),
        Forbidden,
        ("requester_pays=True or AWS_REQUEST_PAYER=requester",),
        "list",
        refused=("s3", 403, "AccessDenied"),
    ),
    Row("s3-paid", at("s3", AWS_REQUEST_PAYER="requester"), None),
    Row("gcs", at("gcs"), ConfigError, ("user_project=",), "list", refused=("gcs", 400, "UserProjectMissing")),
    Row("oss", at("oss"), Forbidden, ("requester_pays=True",), "list", refused=("oss", 403, "AccessDenied")),
)

PUBLIC = (
    Row(
        "s3",
        at("s3", AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY=""),
        Unauthenticated,
        ("AWS_ACCESS_KEY_ID", "anonymous=True", "--anonymous", "AWS_NO_SIGN_REQUEST"),
        "credentials",
    ),
    *(
        Row(
            word,
            named(f"{scheme}://bucket/", {}, *options),
            Unauthenticated,
            (f"{word.upper()}_[A-Z_]*ACCESS_KEY", "anonymous=True", "--anonymous"),
            doctor=(f"{word.upper()}_|ENDPOINT|HOST|DNS",),
        )
        for word, scheme, options in (
            ("r2", "r2", ("account=abc",)),
            ("wasabi", "s3", ("provider=wasabi",)),
            ("tigris", "t3", ()),
            ("minio", "s3", ("provider=minio", "endpoint=http://127.0.0.1:9")),
        )
    ),
    Row(
        "gcs",
        named("gs://bucket/", {"NO_GCE_CHECK": "true"}),
        Unauthenticated,
        ("GOOGLE_APPLICATION_CREDENTIALS", "anonymous=True", "--anonymous"),
        doctor=("GOOGLE_|STORAGE_EMULATOR",),
    ),
    Row(
        "oss",
        at("oss", OSS_ACCESS_KEY_ID="", OSS_ACCESS_KEY_SECRET="", ALIBABA_CLOUD_ECS_METADATA_DISABLED="true"),
        Unauthenticated,
        ("OSS_ACCESS_KEY_ID", "anonymous=True", "--anonymous"),
        "credentials",
    ),
    Row(
        "azure-private",
        _azurite(AZURE_STORAGE_ACCOUNT_KEY="", AZURE_STORAGE_ANON="true"),
        PenstockError,
        ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"),
        "list",
    ),
    Row(
        "ceph-private",
        _ceph(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="", AWS_NO_SIGN_REQUEST="YES"),
        Forbidden,
        ("credentials",),
        "list",
    ),
)

MISTYPED = (
    Row("s3", _mistyped("s3"), NotFound, ("bucket", "endpoint= or AWS_ENDPOINT_URL"), "list"),
    Row("ceph", _ceph("no-such-bucket-here"), NotFound, ("bucket", "endpoint= or AWS_ENDPOINT_URL"), "list"),
    Row("gcs", _mistyped("gcs"), NotFound, ("bucket", "endpoint= or STORAGE_EMULATOR_HOST"), "list"),
    Row("oss", _mistyped("oss"), NotFound, ("bucket", "region= or OSS_REGION"), "list"),
    Row("azure", _mistyped("azure"), NotFound, ("container", "account= or AZURE_STORAGE_ACCOUNT_NAME"), "list"),
    Row("azurite", _azurite("buckett"), NotFound, ("container", "account= or AZURE_STORAGE_ACCOUNT_NAME"), "list"),
    Row(
        "azurite-account",
        _azurite(AZURE_STORAGE_ACCOUNT_NAME="another"),
        Denied,
        ("account= or AZURE_STORAGE_ACCOUNT_NAME",),
        "list",
    ),
    Row(
        "azure-account",
        named("az://bucket/", {**KEYS["az"], "AZURE_STORAGE_ACCOUNT_NAME": "penstockinvalid"}),
        Unreachable,
        ("account= or AZURE_STORAGE_ACCOUNT_NAME",),
        "name resolution",
    ),
    Row("azure-no-account", named("az://bucket/", {}), ConfigError, ("account=", "AZURE_STORAGE_ACCOUNT_NAME")),
    Row(
        "r2-account",
        named("r2://bucket/", {"R2_ACCESS_KEY_ID": "k", "R2_SECRET_ACCESS_KEY": "s", "R2_ACCOUNT_ID": "no"}),
        Unreachable,
        ("account= or R2_ACCOUNT_ID",),
        "name resolution",
    ),
    Row("r2-no-account", named("r2://bucket/", {}), ConfigError, ("account=", "R2_ACCOUNT_ID")),
    Row("oci-no-account", named("oci://bucket/", {"OCI_REGION": "eu"}), ConfigError, ("account=", "OCI_NAMESPACE")),
    Row("web", lambda servers: Said(f"{servers.nginx}/no-such-directory/"), NotFound, ("check the path",)),
    Row("option", named("s3://bucket/", {}, "regoin=eu"), ConfigError, ("did you mean 'region'",)),
)

ROWS = {
    f"{group}-{row.name}": row
    for group, rows in {
        "profile": PROFILES,
        "extra": MISSING,
        "expired": EXPIRED,
        "clock": CLOCKS,
        "keys": KEYS_WRONG,
        "region": REGIONS,
        "addressing": ADDRESSING,
        "tls": TLS,
        "payer": PAYERS,
        "public": PUBLIC,
        "mistyped": MISTYPED,
    }.items()
    for row in rows
}
