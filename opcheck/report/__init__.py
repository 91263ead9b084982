"""Reports of a run: terminal, JSON, JUnit. Never imports torch."""
