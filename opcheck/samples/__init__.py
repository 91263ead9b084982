"""Converts a sample of a spec to tensors on a device, and the operator to the function under test."""
