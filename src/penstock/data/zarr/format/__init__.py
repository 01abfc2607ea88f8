"""Zarr's formats: from metadata documents to the decoding of a chunk.

1. ``metadata`` fetches the documents of an array or group; ``layout`` checks them, and names the objects of chunks.
2. ``references`` locates chunks in other files, by documents of kerchunk and manifests of VirtualiZarr.
   ``tracing`` finds the array that a variable of xarray reads, and the elements that a selection takes.
3. ``shard_index`` locates the inner chunks of a shard.
4. ``codecs`` makes the decoder of an array, of single ``steps``; ``cf`` decodes values by the CF attributes.
"""
