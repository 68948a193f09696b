"""The database: its engine, its migrations, every table, and the one writer of a process [E5]. Spec: recorder.md."""

from __future__ import annotations

from pipeline.decisions.errors import needs

with needs("sql"):
    import sqlalchemy  # noqa: F401 - whether it is there, before a module of this package asks for it
