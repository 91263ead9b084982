"""Which devices are present: `presence` guesses, or has another process ask torch; `device` asks torch in this one."""
