"""`opcheck.gradcheck` and `opcheck.gradgradcheck`, which take the place of torch's functions."""
