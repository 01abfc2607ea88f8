"""Samples of several arrays, by numbers alone: no request, no values.

1. ``alignment`` pairs the elements of several arrays by their coordinates.
2. ``arrangement`` numbers the samples, in blocks that follow the chunks; ``extraction`` cuts each at their borders.
3. ``weights``: weights of the samples, from weights of elements.
"""
