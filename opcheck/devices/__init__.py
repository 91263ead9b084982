"""Which devices are present: `presence` guesses without torch, or has `ask_torch` ask in another process, which imports
it; `availability` asks in this one."""
