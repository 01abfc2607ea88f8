"""Transports of requests: libcurl on one I/O thread per process, and threads for stores without a network.

1. A store's ``session`` passes operations to the I/O thread, through its mailbox.
2. ``loop`` is that thread: it takes waiting operations, within the session's limit and the machine's share.
3. ``easy`` loads a libcurl handle with the request of an operation; ``libcurl`` declares the functions.
4. libcurl writes the body into ``stream``s over the target's memory: no Python code runs for each chunk.
5. ``easy`` unloads the response; ``codes`` turns libcurl's failures into errors; the operation is done, or waits in
   the loop's backlog for another attempt.
6. ``late_calls`` shows slow operations to the store's watch, which may send more.
``work`` carries out the functions of stores without a network, and ``limited`` those that may never return.
"""
