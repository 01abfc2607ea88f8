"""From text to a trained language model: ``make llm``, or ``python -m examples.llm``. See docs/llm.md.

``prepare`` turns text in a bucket into tokens, ``train`` is what torchrun starts, ``story`` starts, kills and compares.
"""
