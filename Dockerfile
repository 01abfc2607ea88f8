# The command `penstock` with every store, from the wheel that `make package` has built:
#   make package && docker build -t penstock .
#   docker run --rm -e AWS_ACCESS_KEY_ID -e AWS_SECRET_ACCESS_KEY -e AWS_REGION penstock ls s3://bucket/
FROM python:3.13-slim
COPY constraints.txt dist/*.whl /tmp/penstock/
RUN pip install --no-cache-dir --constraint /tmp/penstock/constraints.txt \
      "$(echo /tmp/penstock/*.whl)[azure,cli,gcs,oss,parquet,s3,zarr]" \
    && rm -r /tmp/penstock \
    && useradd --create-home penstock
USER penstock
WORKDIR /home/penstock
ENTRYPOINT ["penstock"]
