"""What is looked for in a set of policies before it judges anything, and what explains a rule to its author."""
