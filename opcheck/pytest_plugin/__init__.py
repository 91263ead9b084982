"""The pytest plugin: collects spec files and runs their cases as tests. Its entry point is `hooks`."""
