"""Zarr's formats: from metadata documents to the decoding of a chunk.

1. ``metadata`` fetches the documents of an array or group; ``layout`` checks them, names the objects of chunks, and
   locates the inner chunks of a shard.
2. ``references`` locates chunks in other files, by documents of kerchunk and manifests of VirtualiZarr.
3. ``codecs`` makes the decoder of an array, of single ``steps``; ``cf`` decodes values by the CF attributes.
"""
