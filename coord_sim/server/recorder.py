"""The history as the server sees it."""

from __future__ import annotations

from coord_sim.core.identifiers import NS_PER_S, Incarnation
from coord_sim.core.service import ServiceConfig
from coord_sim.recording.file import RecordingFile
from coord_sim.recording.service_recorder import ServiceRecorder


def server_recorder(
    file: RecordingFile, config: ServiceConfig, incarnation: Incarnation
) -> ServiceRecorder:
    """Begins the recording of a service.

    Args:
      file: Takes it; nothing is written to it yet.
      config: Of the service.
      incarnation: Its own random number.
    """
    details = {
        "semantics": config.semantics.name,
        "recoverable": config.recoverable,
        "heartbeat_timeout_s": config.heartbeat_timeout_ns / NS_PER_S,
    }
    return ServiceRecorder(
        file, observer="server", details=details, tasks=config.tasks, service=incarnation
    )
