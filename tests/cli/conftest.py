"""The demo project, for tests that call commands inside this process."""

from demo_project import cli, project

__all__ = ["cli", "project"]
