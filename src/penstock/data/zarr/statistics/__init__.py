"""Statistics of the arrays of a dataset: mean, standard deviation, least, greatest and missing values.

1. ``gathering`` lists the chunks that samples touch, reads each once, and adds the moments of its values. Versions of
   objects tell whether the values that saved statistics were made of are still there.
2. ``record``: moments of values, and of several sets of values together; ``ZarrStatistics``, which has them, is saved,
   merged and loaded; and the normalisation of arrays by it.
"""
