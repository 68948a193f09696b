"""Policy sets: loading them, their METADATA and entrypoints, and what is wrong with them."""
