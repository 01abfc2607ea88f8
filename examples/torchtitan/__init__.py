"""torchtitan trains its debug model from a bucket: ``make torchtitan``, or ``python -m examples.torchtitan``.

``loader`` is the dataloader, ``config_registry`` has the configurations, ``cpu`` lets torchtitan run without a GPU,
``train`` is what torchrun starts, and ``__main__`` starts, kills and compares. See docs/torchtitan.md.
"""
