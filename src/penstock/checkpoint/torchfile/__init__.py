"""``torch.save`` files: written, loaded and verified record by record."""
