"""Test tools for code on Penstock: a store that fails on demand, contract tests, restarts, and scripted servers.

- ``faults/``: ``FaultServer``, an object store whose faults a test chooses, in any of five dialects.
- ``drivers``: ``DriverContract``, whose tests are the promises of a driver; ``Trial`` sends each verb once.
- ``restarts``: ``check_restarts`` restarts a dataset or a loader after every batch and compares all that follows.
- ``servers``: ``Scripted``, a raw-socket HTTP server whose every byte a script decides.
- ``clock``: ``no_waiting`` makes retries immediate.

Nothing in Penstock but the demo imports this package.
"""
