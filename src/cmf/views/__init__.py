"""Views: what a policy sees of each part of a message, and what a reader may see of it."""
