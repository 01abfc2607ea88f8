"""boto3's get_object, from as many threads as its user starts."""

from boto import client
from meter import BUCKET, Meter, in_threads

meter = Meter()
s3 = client(meter)


def read(keys):
    for key in keys:
        meter.check(key, s3.get_object(Bucket=BUCKET, Key=key)["Body"].read())


with meter:
    in_threads(meter.threads, read, meter.keys)
