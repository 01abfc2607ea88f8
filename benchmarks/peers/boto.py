"""How boto3's peers open what they read or write: as its documentation does, with path addressing."""

import boto3
from botocore.config import Config
from meter import KEY, REGION, SECRET


def client(meter):
    return boto3.client(
        "s3",
        endpoint_url=meter.endpoint,
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
        config=Config(max_pool_connections=max(10, meter.threads), s3={"addressing_style": "path"}),
    )
