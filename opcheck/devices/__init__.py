"""The devices that are present: `presence` imports no torch into this process; `device` does."""
