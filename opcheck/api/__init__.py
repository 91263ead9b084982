"""The public API. `import opcheck` imports each of these modules on first use."""
