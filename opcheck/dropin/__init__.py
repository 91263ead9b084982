"""`opcheck.gradcheck` and `opcheck.gradgradcheck`: drop-in replacements for torch's functions."""
