"""`opcheck run --ray`: the cases of a run as tasks of a Ray cluster."""
