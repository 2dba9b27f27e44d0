"""The options that the commands of ``tvm-codl device`` share."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tvm_codl.device.adb.connection import AdbServer

FOLDER = "/data/local/tmp/tvm_codl"

serial_option = click.option(
    "--serial",
    "-s",
    default="",
    envvar="ANDROID_SERIAL",
    metavar="SERIAL",
    help="Which phone, as ls shows it.  [default: the only one]",
)
folder_option = click.option(
    "--folder", default=FOLDER, show_default=True, metavar="DIR", help="The folder on the phone."
)
tracker_option = click.option("--rpc-tracker", default="", metavar="HOST:PORT", help="A tracker.")
proxy_option = click.option("--rpc-proxy", default="", metavar="HOST:PORT", help="A proxy.")


def adb_server() -> AdbServer:
    """The adb server; where it is is checked before ``adbutils`` is imported."""
    from tvm_codl.device.adb.address import adb_address

    adb_address()
    from tvm_codl.device.adb.connection import AdbServer

    return AdbServer()


def on_phone(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--serial`` and ``--folder``; the command gets ``phone``, and ``folder``, checked."""

    @functools.wraps(command)
    def with_phone(*, serial: str, folder: str, **rest: Any) -> Any:
        phone = adb_server().phone(serial)
        from tvm_codl.device.adb.push import check_folder

        return command(phone=phone, folder=check_folder(folder), **rest)

    return serial_option(folder_option(with_phone))
