"""Reports of runs: their files, comparison, merging and output formats. Never imports torch."""
