"""How the connector's peers open what they read: signed requests, path addressing, and a list instead of a listing."""

import os

from meter import BUCKET, KEY, REGION, SECRET
from s3torchconnector import S3ClientConfig

os.environ.update(AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_EC2_METADATA_DISABLED="true")
OPTIONS = {"region": REGION, "s3client_config": S3ClientConfig(force_path_style=True)}


def opened(kind, meter):
    """Open a dataset over the task's keys."""
    return kind.from_objects([f"s3://{BUCKET}/{key}" for key in meter.keys], endpoint=meter.endpoint, **OPTIONS)


def storage(kind, meter, url):
    """Open a reader or writer of distributed checkpoints: only the environment tells these of another endpoint."""
    os.environ["AWS_ENDPOINT_URL"] = meter.endpoint
    return kind(REGION, url, s3client_config=OPTIONS["s3client_config"])
