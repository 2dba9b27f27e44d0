"""``tvm-codl device``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tvm_codl.cli.device_forward import forward
from tvm_codl.cli.device_options import (
    adb_server,
    folder_option,
    on_phone,
    proxy_option,
    serial_option,
    tracker_option,
)
from tvm_codl.cli.options import FILE, json_option, soc_option
from tvm_codl.cli.output import print_checks, print_json, print_table, talk
from tvm_codl.errors import CheckFailed, DeviceError, UsageError

if TYPE_CHECKING:
    from tvm_codl.device.adb.connection import AdbPhone
    from tvm_codl.device.adb.server import RunningServer
    from tvm_codl.device.profile import DeviceProfile

#: The app's package (rpc_apps/android_rpc).
PACKAGE = "org.tvmcodl.rpc"
#: Where its command-line build puts it.
APK = Path(__file__).parents[2] / "build" / "tvm-codl-rpc.apk"


@click.group()
def command() -> None:
    """Manage phones on adb: push the server or the app, start it, connect to it.

    Everything goes through the adb server of this machine (adb start-server).
    """


command.add_command(forward)


@command.command("ls")
@tracker_option
@proxy_option
@click.option("--rpc-key", multiple=True, metavar="KEY", help="A key to ask the proxy for; it does not list its own.")
@json_option
def ls(rpc_tracker: str, rpc_proxy: str, rpc_key: tuple[str, ...], as_json: bool) -> None:
    """List the phones that adb, a tracker and a proxy know."""
    from rich.table import Table
    from rich.text import Text

    adb = adb_server()
    from tvm_codl.device.adb.listing import list_adb, list_proxy, list_tracker
    from tvm_codl.device.reference.serve import parse_address

    if rpc_proxy and not rpc_key:
        raise UsageError(
            "which phones behind the proxy?", "it does not list its keys", "add --rpc-key KEY (several times)"
        )
    phones, complaints = [], []
    asked: list[Callable[[], Any]] = [lambda: list_adb(adb)]
    if rpc_tracker:
        asked.append(lambda: list_tracker(*parse_address(rpc_tracker)))
    if rpc_proxy:
        asked.append(lambda: list_proxy(*parse_address(rpc_proxy), rpc_key))
    for ask in asked:
        try:
            phones += ask()
        except DeviceError as error:
            complaints.append(error)
    if len(complaints) == len(asked):
        raise complaints[0]
    for complaint in complaints:
        talk(f"{complaint.what}: {complaint.next}")
    if as_json:
        print_json(phones)
        return
    table = Table("serial", "model", "state", "key", "where")
    for phone in phones:
        # As Text: brackets in a phone's words are no markup.
        table.add_row(*(Text(words) for words in (phone.serial, phone.model, phone.state, phone.key, phone.where)))
    if phones:
        print_table(table)
    else:
        talk("no phone: plug one in and allow USB debugging (adb devices -l), or start a server: tvm-codl serve")


@command.command("push")
@on_phone
@click.option("--server", type=FILE, help="The server's executable.  [default: built with the NDK]")
@click.option("--library", "libraries", type=FILE, multiple=True, help="A file to put beside it (.so); several times.")
@click.option("--platform", default="android-arm64", show_default=True, help="What to build the server for.")
@json_option
def push(
    phone: AdbPhone, folder: str, server: Path | None, libraries: tuple[Path, ...], platform: str, as_json: bool
) -> None:
    """Put the server and libraries on the phone; what is there already is not sent again."""
    from tvm_codl.device.adb.push import SERVER
    from tvm_codl.device.adb.push import push as push_files

    files = {SERVER: server or _build_server(platform), **{path.name: path for path in libraries}}
    if len(files) != 1 + len(libraries):
        raise UsageError("two files of one name", ", ".join(map(str, libraries)), "rename one")
    done = push_files(phone, files, folder)
    if as_json:
        print_json(done)
        return
    for file in done:
        click.echo(f"{file.path}: {file.bytes} bytes, {'sent' if file.sent else 'there already'}")
    talk(f"next: tvm-codl device start --serial {phone.serial} --tracker HOST:PORT --key KEY")


def _build_server(platform: str) -> Path:
    """The native server for a platform."""
    try:
        from tvm_codl.runtime.server_build import compile_server
    except ImportError as error:
        raise UsageError("no server to push", str(error), "add --server FILE") from error
    return compile_server(platform)


@command.command("install")
@on_phone
@click.option("--apk", type=FILE, help="The app.  [default: the one that rpc_apps/android_rpc built]")
@click.option("--package", default=PACKAGE, show_default=True, help="The app's package, to read its version.")
@json_option
def install(phone: AdbPhone, folder: str, apk: Path | None, package: str, as_json: bool) -> None:
    """Install the app; permissions are left for the phone's owner to grant."""
    from tvm_codl.device.adb.app import install as install_app

    done = install_app(phone, apk or APK, package, folder)
    if as_json:
        print_json(done)
        return
    click.echo(f"{done.package} {done.version}" + (f", was {done.before}" if done.before else ""))
    talk("next: open the app on the phone; it asks for what it needs")


@command.command("start")
@on_phone
@click.option("--key", default="codl", show_default=True, help="The key that clients ask for.")
@click.option("--port", type=click.IntRange(1, 65535), default=9090, show_default=True, help="The phone's port.")
@click.option(
    "--host",
    type=click.Choice(["127.0.0.1", "0.0.0.0"]),
    default="127.0.0.1",
    show_default=True,
    help="Where the phone listens; 0.0.0.0 lets in whoever reaches it, on networks you trust.",
)
@click.option("--tracker", default="", metavar="HOST:PORT", help="A tracker to register at, as the phone reaches it.")
@click.option("--proxy", default="", metavar="HOST:PORT", help="A proxy to serve through, as the phone reaches it.")
@click.option("--wait", type=click.FloatRange(1), default=30.0, show_default=True, help="Seconds until it must answer.")
@json_option
def start(
    phone: AdbPhone, folder: str, key: str, port: int, host: str, tracker: str, proxy: str, wait: float, as_json: bool
) -> None:  # fmt: skip
    """Start the server on the phone and wait until it answers."""
    from tvm_codl.device.adb.server import ServeOptions
    from tvm_codl.device.adb.server import start as start_server

    serving = start_server(phone, ServeOptions(key, port, host, tracker, proxy), folder, wait)
    if as_json:
        print_json(serving)
    else:
        place = f"port {serving.port}" if serving.port else f"proxy {serving.proxy}"
        click.echo(f"{serving.serial}: process {serving.pid} serves {serving.key} at {place}")
    talk(f"next: {next_command(phone, serving)}")


def next_command(phone: AdbPhone, serving: RunningServer) -> str:
    """The next command for a server that was started."""
    from tvm_codl.device.adb.forward import is_forwarded
    from tvm_codl.device.reference.serve import is_loopback, parse_address

    if serving.tracker:
        measure = f"tvm-codl measure MODEL --rpc-tracker {serving.tracker} --rpc-key {serving.key}"
        # A tracker that the phone reaches over USB sends clients to this machine's port of the same number.
        if serving.port and is_loopback(parse_address(serving.tracker)[0]) and not is_forwarded(phone, serving.port):
            forward_port = f"tvm-codl device forward --serial {serving.serial} --port {serving.port}"
            return f"{forward_port}   (in another terminal), then {measure}"
        return measure
    if serving.proxy:
        return f"tvm-codl measure MODEL --rpc-proxy {serving.proxy} --rpc-key {serving.key}"
    return f"tvm-codl device forward --serial {serving.serial} --port {serving.port}"


@command.command("stop")
@on_phone
@json_option
def stop(phone: AdbPhone, folder: str, as_json: bool) -> None:
    """Stop the server that start started."""
    from tvm_codl.device.adb.server import stop as stop_server

    how = stop_server(phone, folder)
    words = {"none": "no server ran", "stopped": "stopped", "killed": "killed: it did not end in five seconds"}
    if as_json:
        print_json({"serial": phone.serial, "server": how})
    else:
        click.echo(f"{phone.serial}: {words[how]}")


@command.command("info")
@click.option("--local", is_flag=True, help="The reference phone on this machine; needs no adb.")
@serial_option
@folder_option
@tracker_option
@proxy_option
@click.option("--rpc-key", default="", metavar="KEY", help="The key that the phone's server serves there.")
@click.option("--codl", is_flag=True, help="As one of CoDL's files: four facts of the GPU.")
@soc_option
@json_option
def info(
    local: bool, serial: str, folder: str, rpc_tracker: str, rpc_proxy: str, rpc_key: str, codl: bool,
    soc: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Print the phone's profile as YAML: cores and clusters, clocks, GPU, limits, memory, and the GPU's measured peak.

    The shell knows the CPU and the GPU's name; the rest comes from the server on the phone, where one runs.
    """
    from tvm_codl.device.adb.facts import facts_to_yaml, known_facts
    from tvm_codl.device.soc import Soc, read_soc

    facts = read_soc(soc) if soc else Soc()
    with contextlib.ExitStack() as stack:
        profile, remote = _asked(local, serial, folder, (rpc_tracker, rpc_proxy, rpc_key), stack)
        profile = profile.with_soc(facts)
        if codl:
            if profile.soc == Soc():
                raise CheckFailed("nothing of that is known", "no server told it", "tvm-codl device start")
            click.echo(profile.soc.to_yaml(), nl=False)
            return
        told = known_facts(profile)
        if remote is not None:
            from tvm_codl.device.peak import measure_peak

            if (peak := measure_peak(remote)) is not None:
                told["peak"] = known_facts(peak)
    if as_json:
        print_json(told)
    else:
        click.echo(facts_to_yaml(told), nl=False)


def _asked(
    local: bool, serial: str, folder: str, address: tuple[str, str, str], stack: contextlib.ExitStack
) -> tuple[DeviceProfile, Any]:
    """A phone's profile, and the session there, None without a server."""
    if local:
        from tvm_codl.device.connect import connect

        remote = stack.enter_context(connect())
        return remote.profile, remote
    from tvm_codl.device.adb.facts import merge_profiles, read_shell_profile
    from tvm_codl.device.adb.push import check_folder
    from tvm_codl.device.adb.server import find_server

    phone = adb_server().phone(serial)
    profile = read_shell_profile(phone)
    place = _place(phone, find_server(phone, check_folder(folder)), *address, stack)
    if place is None:
        return profile, None
    from tvm_codl.device.connect import connect

    remote = stack.enter_context(connect(place))
    return merge_profiles(profile, remote.profile), remote


def _place(
    phone: Any, serving: RunningServer | None, tracker: str, proxy: str, key: str, stack: contextlib.ExitStack
) -> Any:
    """The server's address; None, after a message on what is missing, where it cannot be asked."""
    from tvm_codl.device.adb.forward import LOOPBACK, forwarded_port
    from tvm_codl.device.spec import Direct, parse_spec

    if tracker or proxy:
        return parse_spec(tracker, proxy, key)
    if serving is None:
        talk(f"the shell's facts alone: no server runs (tvm-codl device start --serial {phone.serial} tells the rest)")
    elif serving.port and not serving.tracker:
        return Direct(LOOPBACK, stack.enter_context(forwarded_port(phone, serving.port)), serving.key)
    else:
        kind, place = ("tracker", serving.tracker) if serving.tracker else ("proxy", serving.proxy)
        talk(f"the shell's facts alone: add --rpc-{kind} {place} --rpc-key {serving.key} for the server's")
    return None


@command.command("shell-check")
@on_phone
@json_option
def shell_check(phone: AdbPhone, folder: str, as_json: bool) -> int:
    """Check whether the phone's shell can run the server; exits with 3 if not."""
    from tvm_codl.device.adb.check import run_checks

    results = print_checks(run_checks(phone, folder), as_json)
    return DeviceError.exit_code if any(check.needed and not check.ok for check in results) else 0
