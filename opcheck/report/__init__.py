"""Consumers of outcomes: terminal, JSON. Never imports torch."""
