"""Drafts specs by trying: guesses arguments, runs the cases, and takes back the claims that the operator refuses."""
