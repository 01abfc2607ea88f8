"""Windows of chunks that zarr reads over obstore with zarrs' pipeline, which decodes in Rust."""

import zarrs  # noqa: F401  its pipeline is what zarr looks up by name
from windows import read

read(**{"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
