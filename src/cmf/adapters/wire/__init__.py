"""What wire formats have in common: reading fields, layouts, losses, ids of calls, streams."""
