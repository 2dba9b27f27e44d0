"""A timeline as a file that ui.perfetto.dev opens: one track a processor, waits and shares on a track beside it.

Trace format: TracePacket with track_event, https://perfetto.dev/docs/reference/synthetic-track-event.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackDescriptor, TrackEvent
from perfetto.trace_builder.proto_builder import TraceProtoBuilder

from tvm_codl.report.timeline import Event

_SEQUENCE = 1
_PROCESS = 1
_TRACKS = {
    ("cpu", True): (2, "CPU kernels"),
    ("cpu", False): (3, "CPU waits and shares"),
    ("gpu", True): (4, "GPU kernels"),
    ("gpu", False): (5, "GPU waits and shares"),
}
_SWITCHES = (6, "switches of plans")


def trace_bytes(events: Sequence[Event], title: str = "tvm_codl") -> bytes:
    """A Perfetto protobuf trace.  Times start at the first event, in nanoseconds."""
    trace = TraceProtoBuilder()
    process = trace.add_packet().track_descriptor
    process.uuid = _PROCESS
    process.process.pid = 1
    process.process.process_name = title
    process.child_ordering = TrackDescriptor.ChildTracksOrdering.EXPLICIT
    switches = [_SWITCHES] if any(event.kind == "switch" for event in events) else []
    for rank, (uuid, name) in enumerate([*_TRACKS.values(), *switches]):
        track = trace.add_packet().track_descriptor
        track.uuid, track.parent_uuid, track.name, track.sibling_order_rank = uuid, _PROCESS, name, rank
    origin = min((event.start_us for event in events), default=0.0)
    edges = sorted(_edges(events, origin), key=lambda edge: edge[:2])
    for number, (at_ns, _, event, begins) in enumerate(edges):
        packet = trace.add_packet()
        packet.timestamp = at_ns
        packet.trusted_packet_sequence_id = _SEQUENCE
        if number == 0:
            # Perfetto drops the events of a sequence whose state has no declared start.
            packet.sequence_flags = TracePacket.SequenceFlags.SEQ_INCREMENTAL_STATE_CLEARED
            packet.first_packet_on_sequence = True
        packet.track_event.track_uuid = _track(event)
        if not begins:
            packet.track_event.type = TrackEvent.TYPE_SLICE_END
            continue
        instant = event.kind == "switch"
        packet.track_event.type = TrackEvent.TYPE_INSTANT if instant else TrackEvent.TYPE_SLICE_BEGIN
        packet.track_event.name = event.name
        packet.track_event.categories.append(event.kind)
        if event.region:
            note = packet.track_event.debug_annotations.add()
            note.name, note.string_value = "region", event.region
    return bytes(trace.serialize())


def _track(event: Event) -> int:
    return _SWITCHES[0] if event.kind == "switch" else _TRACKS[event.processor, event.kind == "kernel"][0]


def _edges(events: Sequence[Event], origin: float) -> list[tuple[int, tuple[int, int, int], Event, bool]]:
    """Begin and end of each event with a sort key that nests slices of one track: at one time, ends before begins."""
    edges = []
    for index, event in enumerate(events):
        start = round((event.start_us - origin) * 1000)
        end = max(round((event.end_us - origin) * 1000), start + 1)
        edges.append((start, (1, -end, index), event, True))
        if event.kind != "switch":
            edges.append((end, (0, -start, -index), event, False))
    return edges


def write_trace(path: str | Path, events: Sequence[Event], title: str = "tvm_codl") -> None:
    Path(path).write_bytes(trace_bytes(events, title))
