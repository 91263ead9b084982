"""Reports of a run: the store, and what reads it. Never imports torch."""
