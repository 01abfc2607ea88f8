"""Files of ``torch.save``: written, loaded and checked record by record."""
