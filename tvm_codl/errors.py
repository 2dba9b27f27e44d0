"""The errors a user meets.  Each says what failed, the evidence, and the next command to run."""

from __future__ import annotations


class CodlError(Exception):
    """Base of all errors that the command line prints without a traceback.

    ``exit_code`` follows the design: 1 the user's mistake, 2 usage, 3 the device, 4 a failed check.
    """

    exit_code = 1

    def __init__(self, what: str, evidence: str = "", next: str = "") -> None:
        super().__init__(what)
        self.what, self.evidence, self.next = what, evidence, next

    def __str__(self) -> str:
        lines = [self.what]
        if self.evidence:
            lines.append(f"  evidence: {self.evidence}")
        if self.next:
            lines.append(f"  next: {self.next}")
        return "\n".join(lines)


class UserError(CodlError):
    """A file, plan, shape or option of the user's is wrong."""

    exit_code = 1


class WorkplaceError(UserError):
    """What a build needs on this computer is not there, a compiler or room on a disk: that says nothing of what was built."""


class UsageError(CodlError):
    """The command line itself is wrong."""

    exit_code = 2


class DeviceError(CodlError):
    """The phone, its tracker or its OpenCL failed."""

    exit_code = 3


class KernelRejected(DeviceError):
    """The compiler on the phone rejects a GPU kernel of a library."""


class CheckFailed(CodlError):
    """A result was compared with its reference and differs."""

    exit_code = 4
