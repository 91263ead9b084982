"""Which devices are present: `presence` guesses without torch, `availability` asks torch."""
