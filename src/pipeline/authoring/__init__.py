"""Tools of policy authors: checks, cases, explanations."""
