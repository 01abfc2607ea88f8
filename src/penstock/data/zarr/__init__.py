"""Datasets of Zarr arrays: from ``ZarrDataset(url)`` to a sample.

1. ``dataset`` checks its arguments (``arguments``), before the first request.
2. ``arrays`` opens the arrays that they name: ``format`` reads documents, references and codecs of each array. Of a
   process group, one rank does.
3. ``coordinates`` reads coordinates, by which elements of several arrays are paired.
4. ``samples`` numbers the samples, and cuts each one at the borders of chunks.
5. ``chunks`` reads the chunks of an epoch, decodes each once within the limits of memory, and stacks the samples
   (``values``).
6. ``plan`` and ``measure``: costs. ``borders``: parts and subsets. ``statistics``: of arrays, for their normalisation.
"""
