"""The database: its engine, its migrations, every table, and the one writer of a process [E5]. Spec: recorder.md."""
