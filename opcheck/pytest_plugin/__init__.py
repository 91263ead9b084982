"""The pytest plugin: collects spec files and runs their cases as tests. pytest enters by `hooks`."""
