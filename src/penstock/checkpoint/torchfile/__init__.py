"""``torch.save`` files: written, loaded and verified record by record.

``verbs`` saves and loads by URL; ``encoding`` keeps values within weights only; ``archive`` reads the zip's directory,
and ``scanner`` its pickle, without running code; ``load`` has torch make the objects and reads their storages.
"""
