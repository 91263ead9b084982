"""Which devices are present: `presence` guesses, or has another process ask torch; `hooks` asks torch in this one."""
