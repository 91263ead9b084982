"""The demo project, for tests that drive opcheck as a user would."""

from demo_project import cli, plain_pytest, project, shared

__all__ = ["cli", "plain_pytest", "project", "shared"]
