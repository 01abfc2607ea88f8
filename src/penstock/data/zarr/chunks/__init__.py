"""Chunks of arrays, from the order of an epoch to its samples.

1. ``reading`` follows the order of an epoch, and has its chunks read ahead; ``limits`` has the memory that they take.
2. ``contents`` locates each chunk, by the index of its shard, and decodes it by the codecs of ``format``, once.
3. ``reading`` cuts the samples from decoded chunks, in the order of an epoch or by number, and stacks them.
"""
