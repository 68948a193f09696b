"""One of several processes that serve one address; `workers` begins it. Spec: docs/spec/gateway.md [GW-155].

`python -m pipeline.gateway.processes.worker FD PATH [quiet]`: clients are waited for on the socket FD, the crew on the
socket at PATH, and the settings are a line on standard input. When that ends, so does the process: its crew is gone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from cmf.json.codec import loads
from pipeline.decisions.errors import PipelineError
from pipeline.decisions.json_log import log_to_standard_error
from pipeline.gateway.config.settings import Settings
from pipeline.gateway.http.server import BACKLOG
from pipeline.gateway.operations.admin import AdminApp
from pipeline.gateway.processes.workers import REFUSED, run
from pipeline.gateway.service import Service, assembled, vet_policies


def main() -> int:
    """Serve until a signal ends it; gives the exit code."""
    clients = socket.socket(fileno=int(sys.argv[1]))
    settings = Settings.model_validate(loads(sys.stdin.buffer.readline()))
    log_to_standard_error(quiet=sys.argv[3:] == ["quiet"])
    try:
        vet_policies(settings)
        with assembled(settings) as service, socket.socket(socket.AF_UNIX) as beside:
            beside.bind(sys.argv[2])
            beside.listen(BACKLOG)
            asyncio.run(_run(service, settings, clients, beside))
    except PipelineError as error:
        logging.getLogger("pipeline.gateway").error("%s", error)
        return REFUSED
    finally:
        Path(sys.argv[2]).unlink(missing_ok=True)
    return 0


async def _run(service: Service, settings: Settings, clients: socket.socket, beside: socket.socket) -> None:
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _alone)
    await run(service, settings, clients, AdminApp(service.operations, None), beside)


def _alone() -> None:
    """End: nobody is left who would tell this process to."""
    asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
