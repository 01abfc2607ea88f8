"""Datasets of Zarr arrays: from ``ZarrDataset(url)`` to a sample.

1. ``dataset`` checks its arguments (``arguments``), before the first request.
2. ``opening`` finds the arrays: ``format`` reads their documents, and locates chunks in other files by references;
   ``foreign`` takes arrays that a program has opened.
3. ``arrays``: where the objects of each array are, and how its values are decoded.
4. ``coordinates`` reads coordinates, and ``alignment`` pairs elements of several arrays by them.
5. ``arrangement`` numbers the samples; ``extraction`` cuts each one at the borders of chunks.
6. ``reading`` follows the order of an epoch; ``pool`` schedules its chunks within the limits of memory.
7. ``contents`` locates each chunk, by the index of its shard, and decodes it by the codecs of ``format``, once.
8. ``reading`` cuts the samples from decoded chunks, and stacks them. ``plan`` and ``measure``: costs.
   ``borders``: parts and subsets; ``sample_weights``: weights by element. ``map``: samples by number;
   ``series``: stores as one array; ``statistics``: of arrays, and normalisation by them.
"""
