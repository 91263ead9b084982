"""The demo project, for tests that drive opcheck as a user would."""

from demo_project import cli, project

__all__ = ["cli", "project"]
