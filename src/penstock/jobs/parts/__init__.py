"""Jobs in parts: operations on any number of objects, whose parts are recorded in a folder and never repeated.

1. A function of ``syncing``, ``packing``, ``indexing`` or ``verify`` makes an ``Operation`` (``operation``), which can
   be pickled and holds no secret, and a ``Job``.
2. ``records``: the plan is published once in the job's folder, for all processes.
3. ``run`` gives parts without a record to a carrier (``carriers``): this process, others on this machine
   (``processes``), or tasks on a Ray cluster. A part whose worker dies has further attempts (``attempts``).
4. Every carrier calls ``operation.done`` for a part: do it, write its record.
5. Once all parts are done, the operation finishes: with the same result on every process that does it.
   ``report`` shows a job from its records.
"""
