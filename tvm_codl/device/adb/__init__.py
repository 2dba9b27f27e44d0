"""Phones over adb: files, ports, the server, the app and facts."""
