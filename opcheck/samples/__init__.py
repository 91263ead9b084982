"""Turns a sample of a spec into tensors on a device, and the operator into the function that is tested."""
