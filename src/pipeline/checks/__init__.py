"""Static checks, tests and explanations of policy sets, for their authors."""
