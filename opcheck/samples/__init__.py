"""Turns a sample of a spec into tensors on a device, and the operator into the function that is tested."""

from opcheck.samples.function import TestedFunction
from opcheck.samples.inputs import Inputs
from opcheck.samples.realize import realize
from opcheck.samples.resolve import Unresolved, resolve

__all__ = ["Inputs", "TestedFunction", "Unresolved", "realize", "resolve"]
