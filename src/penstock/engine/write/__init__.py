"""Writes: parts in parallel, published in one step.

1. ``upload`` is the file that a caller writes: it fills a buffer of ``parts``, and digests it on the way.
2. What fits in one part is one PUT when the file is closed. Otherwise an upload begins with the first full part, and
   parts are sent within a budget of memory while the caller writes.
3. ``publish`` makes the object visible with one request, on the condition of the write, and looks at the outcome: a
   HEAD compares size and ETag, and the object's mark tells whose write it was if an answer was lost.
4. An error, a dropped reference or the end of the process aborts: no reader has seen anything.
``copy`` copies within a bucket, server-side, in one request or as parts of an upload.
"""
