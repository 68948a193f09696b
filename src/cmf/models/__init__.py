"""Models: what they can do and cost, what a request needs of them, and media for them."""
