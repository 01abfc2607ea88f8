"""Loading of batches: threads or workers that decode ahead, resumable state, and copies to the device.

1. ``loader`` checks its arguments (``arguments``), and takes the batches of a dataset (``datasets/batched``).
2. ``decoding`` transforms the samples in threads, or torch's workers do, and copies batches to the device.
   ``sendable`` sends functions to workers that are not forked.
3. ``stats`` counts samples, waits and requests, in memory that the workers share.
4. ``summary`` divides the time that training waited by cause, with advice; ``report`` shows it as text, JSON or HTML.
5. ``group`` merges the reports of all ranks.
"""
