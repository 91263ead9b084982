"""Consumers of outcomes: terminal, JSON, JUnit. Never imports torch."""
