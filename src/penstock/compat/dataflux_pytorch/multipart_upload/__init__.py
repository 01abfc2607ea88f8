"""``dataflux_pytorch.multipart_upload`` over Penstock."""
