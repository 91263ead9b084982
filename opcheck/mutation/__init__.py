"""Measures which wrong gradients the samples of a spec would not detect: those wrong under one condition only."""
