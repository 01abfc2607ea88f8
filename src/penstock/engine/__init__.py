"""Engine: bytes in flight, between a store's driver below and files, datasets and checkpoints above. Store-independent.

From a call to bytes:

1. ``source`` opens a store once per process: its driver, its transport, and the ``Fetcher`` over both
   (``fetch/fetcher``).
2. A caller prepares operations: reads of spans (``read/``), other verbs of the driver (``operations/operation``), a
   file that is written (``write/upload``), pages of a listing (``fetch/pages``, ``listing/``). A cache may come first
   (``cache/layer``).
3. The transport takes them (``transport/session``): libcurl's I/O thread (``transport/loop``), or a few threads for
   stores without a network (``transport/work``).
4. For each attempt an operation asks the driver for a request, and receives the response, which the driver's parser
   verifies (``contracts/``). Bodies arrive in memory of the caller or of the operation (``buffer``).
5. After a failure ``operations/policy`` decides on a delay and another attempt; processes of a machine share rates and
   memory (``node/``).
6. The end of an operation wakes the thread that waits at its inbox (``waiting``), which takes the result.

``endpoint`` checks addresses, ``support`` which verbs a driver has; ``budget`` is the arithmetic of limits, and
``blocks`` a file that is read in blocks.

Words for work in flight, in this order:

- ``Request``: one message on the wire, or ``Work``, a function where there is no wire. A driver's verb returns it with
  the parser of its ``Response``, as an ``Exchange``.
- ``Operation``: is retried until it is done, with a request for each attempt. ``ReadOperation`` fills memory with a
  span, for an ``Owner``; ``VerbOperation`` is one verb of the driver.
- ``Batch``: operations that are prepared and sent together. A thread waits for those that it names (``Awaited``) at an
  ``Inbox``.
"""
