"""A suite of cases in pytest: what the hooks in `opcheck.pytest_plugin.hooks` do."""
