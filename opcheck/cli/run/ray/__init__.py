"""`opcheck run --ray`: runs cases as tasks of a Ray cluster."""
