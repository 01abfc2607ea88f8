"""Reports on why a training loop waits for its batches: text, JSON and HTML, with one recommendation."""
