"""One module a process that is measured; each offers `operations()`: name → callable without arguments."""
