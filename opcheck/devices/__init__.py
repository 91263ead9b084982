"""Which devices are present: `presence` guesses without torch, or has `asked` ask in another process; `availability`
asks torch."""
