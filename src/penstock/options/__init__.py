"""One frozen value per engine; every field says its unit, its default, and where the default came from."""

from penstock.options.azure import AzureOptions
from penstock.options.cache import CacheOptions
from penstock.options.fsspec import FsspecOptions
from penstock.options.gcs import GCSOptions
from penstock.options.http import HTTPOptions
from penstock.options.oss import OSSOptions
from penstock.options.parts import NodeOptions, ReadOptions, RetryOptions, TransportOptions, WriteOptions
from penstock.options.private import PUBLIC as PUBLIC  # for providers of other distributions
from penstock.options.s3 import S3Options
from penstock.options.store import StoreOptions

__all__ = [
    "AzureOptions",
    "CacheOptions",
    "FsspecOptions",
    "GCSOptions",
    "HTTPOptions",
    "NodeOptions",
    "OSSOptions",
    "ReadOptions",
    "RetryOptions",
    "S3Options",
    "StoreOptions",
    "TransportOptions",
    "WriteOptions",
]
