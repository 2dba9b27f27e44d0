"""``tvm-codl serve``."""

from __future__ import annotations

import click

from tvm_codl.cli.output import talk
from tvm_codl.errors import UsageError

UNSAFE = (
    "TVM RPC has no authentication and runs whatever it is sent: a host other than 127.0.0.1 is for networks you trust."
)


@click.command(epilog=UNSAFE)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option("--port", type=int, default=9090, show_default=True, help="First port to try; 0 takes any free one.")
@click.option("--port-end", type=int, default=9199, show_default=True, help="End of the ports to try.")
@click.option("--tracker", default="", metavar="HOST:PORT", help="A tracker to register at.")
@click.option("--proxy", default="", metavar="HOST:PORT", help="A proxy to serve through, instead of a port.")
@click.option("--key", default="codl", show_default=True, help="The key that clients ask for.")
def command(host: str, port: int, port_end: int, tracker: str, proxy: str, key: str) -> None:
    """Start the reference phone's RPC server: CPU and OpenCL, each on half of this machine's cores, until interrupted.

    One line of JSON on stdout says where it listens; sessions are logged to stderr.
    """
    from tvm_codl.device.reference.serve import is_hidden, parse_address, serve

    if tracker and proxy:
        raise UsageError("--tracker and --proxy exclude each other")
    for place in (tracker, proxy):
        if place:
            parse_address(place)
    if is_hidden(host, tracker):
        talk(
            f"the tracker {tracker} sends clients to this machine's own address: they will not reach {host} (see --host)"
        )
    serve(host=host, port=port, port_end=port_end, tracker=tracker, proxy=proxy, key=key)
