"""A stand-in for the adb server, for tests: the real protocol over TCP, with phones of :mod:`tests.phone.stand_in_phone`.

A phone's loopback is 127.0.0.2, so that a port may have the same number on both sides.

Protocol: Android's ``packages/modules/adb`` (OVERVIEW.TXT, SERVICES.TXT, SYNC.TXT).
"""

from __future__ import annotations

import contextlib
import socketserver
import stat
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.phone.pipes import Pipes
from tests.phone.stand_in_phone import Phone

HOST, PHONE = "127.0.0.1", "127.0.0.2"
VERSION = 41


class Fail(Exception):
    """What the client is told after FAIL."""


class Session(socketserver.StreamRequestHandler):
    """One connection of a client."""

    server: StandInAdb

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError, ValueError, EOFError):
            try:
                self._serve(self._command())
            except Fail as fail:
                self.wfile.write(b"FAIL" + _block(str(fail)))

    def _command(self) -> str:
        return self._read(int(self._read(4), 16)).decode()

    def _read(self, size: int) -> bytes:
        data = self.rfile.read(size)
        if len(data) < size:
            raise EOFError
        return data

    def _okay(self, text: str | None = None, times: int = 1) -> None:
        self.wfile.write(b"OKAY" * times + (b"" if text is None else _block(text)))

    def _serve(self, command: str) -> None:
        phones = self.server.phones
        if command == "host:version":
            self._okay(f"{VERSION:04x}")
        elif command == "host:devices-l":
            self._okay("".join(_line(index, phone) for index, phone in enumerate(phones)))
        elif command.startswith("host:tport:serial:"):
            phone = self._phone(command.removeprefix("host:tport:serial:"))
            self.wfile.write(b"OKAY" + struct.pack("<Q", 1))
            self._local(phone, self._command())
        elif command.startswith("host:transport:"):
            phone = self._phone(command.removeprefix("host:transport:"))
            self._okay()
            self._local(phone, self._command())
        elif command.startswith("host-serial:"):
            rest = command.removeprefix("host-serial:")
            serial = max((p.serial for p in phones if rest.startswith(p.serial + ":")), key=len, default=rest)
            self._host(self._phone(serial), rest[len(serial) + 1 :])
        else:
            raise Fail(f"unknown host service {command!r}")

    def _phone(self, serial: str) -> Phone:
        for phone in self.server.phones:
            if phone.serial == serial:
                if phone.state != "device":
                    raise Fail(f"device {phone.state}")
                return phone
        raise Fail(f"device '{serial}' not found")

    def _host(self, phone: Phone, command: str) -> None:
        if command == "features":
            self._okay("shell_v2,cmd,stat_v2")
        elif command == "get-state":
            self._okay(phone.state)
        elif command == "list-forward":
            self._okay("".join(f"{p.serial} {a} {b}\n" for p in self.server.phones for a, (b, _) in p.forwards.items()))
        elif command.startswith("killforward:"):
            self._kill(phone.forwards, command.removeprefix("killforward:"))
            self._okay(times=2)
        elif command.startswith("forward:"):
            self._map(phone.forwards, command.removeprefix("forward:"), HOST, PHONE)
            self._okay(times=2)
        else:
            raise Fail(f"unknown service {command!r}")

    def _local(self, phone: Phone, command: str) -> None:
        name, _, rest = command.partition(":")
        if name in ("shell", "shell,v2"):
            self._okay()
            self._shell(phone, rest, packets=name == "shell,v2")
        elif name == "sync":
            self._okay()
            self._sync(phone)
        elif command == "reverse:list-forward":
            self._okay("".join(f"UsbFfs {a} {b}\n" for a, (b, _) in phone.reverses.items()))
        elif command.startswith("reverse:killforward:"):
            self._okay()
            self._kill(phone.reverses, command.removeprefix("reverse:killforward:"))
            self._okay()
        elif command.startswith("reverse:forward:"):
            self._okay()
            self._map(phone.reverses, command.removeprefix("reverse:forward:"), PHONE, HOST)
            self._okay()
        else:
            raise Fail(f"unknown service {command!r}")

    def _shell(self, phone: Phone, command: str, packets: bool) -> None:
        """Raw output, or version 2's packets: 1 is stdout, 3 the exit code."""
        process = phone.shell(command)
        assert process.stdout is not None
        try:
            while data := process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
                self.wfile.write((struct.pack("<BI", 1, len(data)) if packets else b"") + data)
            code = process.wait()
            if packets:
                self.wfile.write(struct.pack("<BIB", 3, 1, code & 0xFF))
        finally:
            process.kill()
            process.wait()

    def _map(self, mappings: dict[str, tuple[str, Pipes]], words: str, listen: str, to: str) -> None:
        rebind = not words.startswith("norebind:")
        here, there = words.removeprefix("norebind:").split(";")
        if here in mappings:
            if not rebind:
                raise Fail("cannot rebind existing socket")
            self._kill(mappings, here)
        try:
            pipes = Pipes(listen, int(here.removeprefix("tcp:")), (to, int(there.removeprefix("tcp:"))))
        except OSError as error:
            raise Fail(f"cannot bind listener: {error.strerror}") from error
        mappings[here] = (there, pipes)

    def _kill(self, mappings: dict[str, tuple[str, Pipes]], here: str) -> None:
        if here not in mappings:
            raise Fail(f"listener '{here}' not found")
        mappings.pop(here)[1].close()

    def _sync(self, phone: Phone) -> None:
        while True:
            word, size = struct.unpack("<4sI", self._read(8))
            path = self._read(size).decode()
            if word == b"STAT":
                self.wfile.write(b"STAT" + struct.pack("<III", *_status(Path(path))))
            elif word == b"LIST":
                for entry in sorted(Path(path).iterdir()) if Path(path).is_dir() else []:
                    name = entry.name.encode()
                    self.wfile.write(b"DENT" + struct.pack("<IIII", *_status(entry), len(name)) + name)
                self.wfile.write(b"DONE" + bytes(16))
            elif word == b"RECV":
                try:
                    data = Path(path).read_bytes()
                except OSError as error:
                    text = str(error.strerror).encode()
                    self.wfile.write(b"FAIL" + struct.pack("<I", len(text)) + text)
                    continue
                for at in range(0, len(data), 1 << 16):
                    chunk = data[at : at + (1 << 16)]
                    self.wfile.write(b"DATA" + struct.pack("<I", len(chunk)) + chunk)
                self.wfile.write(b"DONE" + struct.pack("<I", 0))
            elif word == b"SEND":
                self._receive(phone, path)
            else:
                return

    def _receive(self, phone: Phone, words: str) -> None:
        path, _, mode = words.rpartition(",")
        phone.sent.append(Path(path).name)
        data = bytearray()
        while True:
            word, size = struct.unpack("<4sI", self._read(8))
            if word == b"DONE":
                break
            data += self._read(size)
        try:
            if phone.folder not in Path(path).parents:
                raise OSError(30, "Read-only file system")
            Path(path).write_bytes(data[: self.server.room])
            Path(path).chmod(stat.S_IMODE(int(mode)))
        except OSError as error:
            text = str(error.strerror).encode()
            self.wfile.write(b"FAIL" + struct.pack("<I", len(text)) + text)
        else:
            self.wfile.write(b"OKAY" + struct.pack("<I", 0))


class StandInAdb(socketserver.ThreadingTCPServer):
    """The adb server with its phones; ``room`` is where every file that is sent is cut off."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, phones: list[Phone]) -> None:
        super().__init__((HOST, 0), Session)
        self.phones, self.room = phones, 1 << 30
        self.port = int(self.server_address[1])


@contextlib.contextmanager
def stand_in_adb(*phones: Phone) -> Iterator[StandInAdb]:
    """The stand-in, in a thread."""
    with StandInAdb(list(phones)) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()
            for phone in phones:
                phone.unplug()


def _block(text: str) -> bytes:
    data = text.encode()
    return f"{len(data):04x}".encode() + data


def _line(index: int, phone: Phone) -> str:
    words = f"{phone.serial:<22} {phone.state}"
    if phone.state == "device":
        words += f" usb:1-{index} product:stand_in model:{phone.model} device:stand_in"
    return f"{words} transport_id:{index + 1}\n"


def _status(path: Path) -> tuple[int, int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mode, min(found.st_size, 0xFFFFFFFF), int(found.st_mtime)
