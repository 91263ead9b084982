"""A suite of cases in pytest: what `opcheck.pytest_plugin` hooks into it."""
