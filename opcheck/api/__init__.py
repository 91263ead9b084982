"""What `import opcheck` offers. Each module is imported on first use."""
