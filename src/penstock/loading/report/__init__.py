"""Why a training loop waits for its batches: as text, JSON and a page, with one recommendation."""
