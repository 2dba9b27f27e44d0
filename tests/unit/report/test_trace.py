from __future__ import annotations

from pathlib import Path

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from tvm_codl.report.timeline import Event
from tvm_codl.report.trace import trace_bytes, write_trace

EVENTS = (
    Event("conv", "cpu", "kernel", 100.0, 110.5, "codl_cpu_0"),
    Event("conv", "gpu", "kernel", 102.25, 108.0, "codl_gpu_0"),
    Event("wait", "gpu", "wait", 108.0, 110.5, "codl_gpu_1"),
    Event("next", "gpu", "kernel", 110.5, 112.0, "codl_gpu_1"),
    Event("empty", "cpu", "kernel", 110.5, 110.5, "codl_cpu_1"),
)


def slices(trace: Trace) -> list[tuple[str, str, str, int, int]]:
    """(track, name, region, start, end) in nanoseconds, as a viewer pairs begins and ends."""
    names = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    stacks: dict[int, list[tuple[str, str, int]]] = {}
    found = []
    last = 0
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        assert packet.timestamp >= last and packet.trusted_packet_sequence_id
        last = packet.timestamp
        stack = stacks.setdefault(event.track_uuid, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            region = event.debug_annotations[0].string_value
            stack.append((event.name, region, packet.timestamp))
        else:
            assert event.type == TrackEvent.TYPE_SLICE_END
            name, region, start = stack.pop()
            found.append((names[event.track_uuid], name, region, start, packet.timestamp))
    assert not any(stacks.values())
    return sorted(found)


def test_the_trace_reads_back_as_the_events(tmp_path: Path) -> None:
    write_trace(tmp_path / "run.pftrace", EVENTS, "small")
    trace = Trace()
    trace.ParseFromString((tmp_path / "run.pftrace").read_bytes())
    assert slices(trace) == [
        ("CPU kernels", "conv", "codl_cpu_0", 0, 10500),
        ("CPU kernels", "empty", "codl_cpu_1", 10500, 10501),
        ("GPU kernels", "conv", "codl_gpu_0", 2250, 8000),
        ("GPU kernels", "next", "codl_gpu_1", 10500, 12000),
        ("GPU waits and shares", "wait", "codl_gpu_1", 8000, 10500),
    ]
    assert trace.packet[0].track_descriptor.process.process_name == "small"


def test_tracks_belong_to_the_process_and_the_state_starts_afresh() -> None:
    trace = Trace()
    trace.ParseFromString(trace_bytes(EVENTS))
    tracks = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    assert {track.parent_uuid for track in tracks[1:]} == {tracks[0].uuid}
    assert len({track.uuid for track in tracks}) == 5
    first = next(p for p in trace.packet if p.HasField("track_event"))
    assert first.sequence_flags == 1 and first.first_packet_on_sequence


def test_no_events_make_an_empty_trace() -> None:
    trace = Trace()
    trace.ParseFromString(trace_bytes([]))
    assert slices(trace) == []


def test_a_switch_of_plans_is_an_instant_on_a_track_of_its_own() -> None:
    trace = Trace()
    trace.ParseFromString(trace_bytes([*EVENTS, Event("calm -> busy: why", "cpu", "switch", 100.0, 100.0)]))
    names = {p.track_descriptor.uuid: p.track_descriptor.name for p in trace.packet if p.HasField("track_descriptor")}
    instants = [
        (names[p.track_event.track_uuid], p.track_event.name, p.timestamp)
        for p in trace.packet
        if p.HasField("track_event") and p.track_event.type == TrackEvent.TYPE_INSTANT
    ]
    assert instants == [("switches of plans", "calm -> busy: why", 0)]
    assert (
        sum(p.track_event.type == TrackEvent.TYPE_SLICE_BEGIN for p in trace.packet if p.HasField("track_event")) == 5
    )
