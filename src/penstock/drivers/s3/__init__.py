"""The S3 dialect: verbs, vocabulary, code table and signature."""

from penstock.drivers.s3.driver import S3
from penstock.drivers.s3.vocabulary import Bucket

__all__ = ["S3", "Bucket"]
