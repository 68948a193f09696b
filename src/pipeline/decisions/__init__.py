"""What a decision is made of, and the plain values that all packages above share."""
