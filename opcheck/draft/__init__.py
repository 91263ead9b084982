"""Drafts specs by trial.

`target` finds the operators. For each, `trial` does the work in a fork: `search` tries guesses (`parameters`, `guess`),
recorded calls (`recorder`) and what refusals teach (`repair`), by `attempt`, and `draft` takes back the claims that the
operator refuses. `author` writes the specs, and reports what fails.
"""
