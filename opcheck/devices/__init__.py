"""Which of the devices that profiles describe are present."""

from opcheck.devices.availability import Availability, availability

__all__ = ["Availability", "availability"]
