from __future__ import annotations

import pytest
import tvm

from tvm_codl.device.connect import connect, translate_errors
from tvm_codl.errors import DeviceError, UserError


def test_what_tvm_raises_when_the_phone_is_gone_says_so() -> None:
    for broken in (tvm.error.RPCError("stack\nSocket reset by peer"), ConnectionResetError("Socket reset by peer")):
        with (
            pytest.raises(DeviceError, match="the phone at home went away") as error,
            translate_errors("home", lambda: False),
        ):
            raise broken
        assert error.value.evidence == f"{type(broken).__name__}: Socket reset by peer"
        assert error.value.__cause__ is broken


def test_what_is_not_the_phones_fault_stays_what_it_is() -> None:
    with pytest.raises(tvm.error.TVMError, match="of ours"), translate_errors("home", lambda: True):
        raise tvm.error.TVMError("of ours")
    with pytest.raises(UserError, match="yours"), translate_errors("home", lambda: False):
        raise UserError("yours")
    with pytest.raises(ZeroDivisionError), translate_errors("home", lambda: False):
        raise ZeroDivisionError


def test_a_phone_of_this_command_that_is_late_is_not_called_busy_with_another_client() -> None:
    """22 others started beside it, on a cold disk."""
    with pytest.raises(DeviceError, match="did not answer within") as error, connect(timeout_s=1e-3):
        pass
    assert "this machine is busy" in str(error.value) and "client" not in str(error.value)
