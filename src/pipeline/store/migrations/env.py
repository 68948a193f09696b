"""How Alembic runs the migrations: on the connection that `pipeline.store.engine` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

from pipeline.store.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
