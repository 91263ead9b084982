"""Drafts specs by trial: guesses arguments, runs the cases, and takes back the claims that the operator refuses."""
