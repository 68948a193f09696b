"""HTTP at the gateway's door: reading requests strictly, writing answers."""
