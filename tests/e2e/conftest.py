"""The demo project and a browser, for tests that drive opcheck as a user would."""

from browser import chromium, visit
from demo_project import cli, plain_pytest, project, shared

__all__ = ["chromium", "cli", "plain_pytest", "project", "shared", "visit"]
