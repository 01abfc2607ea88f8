"""Run:ai's model streamer: safetensors, each tensor as it comes, which is then the caller's."""

import os

from meter import BUCKET, KEY, REGION, SECRET, Meter
from model import SAFETENSORS

meter = Meter()
os.environ.update(
    AWS_ACCESS_KEY_ID=KEY,
    AWS_SECRET_ACCESS_KEY=SECRET,
    AWS_REGION=REGION,
    AWS_DEFAULT_REGION=REGION,
    AWS_ENDPOINT_URL=meter.endpoint,
    AWS_CA_BUNDLE=meter.ca,
    RUNAI_STREAMER_S3_ENDPOINT=meter.endpoint,
    RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING="0",
)

from runai_model_streamer import SafetensorsStreamer  # noqa: E402  it reads the environment

with meter, SafetensorsStreamer() as streamer:
    streamer.stream_file(f"s3://{BUCKET}/{meter.layout(SAFETENSORS)}")
    meter.check_tensors(dict(streamer.get_tensors()))
