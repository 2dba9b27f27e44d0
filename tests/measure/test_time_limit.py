"""What a time limit interrupts, and what it leaves alone."""

from __future__ import annotations

import math
import signal
import threading
import time

import pytest
import tvm

from tvm_codl.errors import UsageError
from tvm_codl.measure.time_limit import TimeOver, time_limit

#: Far more than any of this takes.
LONG_S = 60.0


def test_what_takes_longer_is_interrupted() -> None:
    with pytest.raises(TimeOver), time_limit(0.05):
        time.sleep(LONG_S)
        pytest.fail("it slept to the end")


def test_no_handler_of_errors_takes_it_for_one() -> None:
    with pytest.raises(TimeOver), time_limit(0.05):
        try:
            time.sleep(LONG_S)
        except Exception:
            pytest.fail("it is no error")


def test_what_ends_in_time_is_left_alone_and_so_is_what_comes_behind_it() -> None:
    handler = signal.getsignal(signal.SIGALRM)
    with time_limit(0.05):
        pass
    with time_limit(math.inf):
        time.sleep(0.1)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert signal.getsignal(signal.SIGALRM) == handler


def test_no_time_at_all_ends_at_once() -> None:
    with pytest.raises(TimeOver), time_limit(0.0):
        time.sleep(LONG_S)


def test_python_drops_it_in_a_finalizer_and_it_comes_again() -> None:
    class Slow:
        def __del__(self) -> None:
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                pass

    with pytest.raises(TimeOver), time_limit(0.05, again_s=0.5):
        made = Slow()
        del made
        time.sleep(LONG_S)


def test_native_code_that_calls_python_ends_with_it_too() -> None:
    """ctypes makes a SystemError of it."""
    with pytest.raises(TimeOver), time_limit(0.05):
        tvm.get_global_func("testing.run_check_signal")(int(LONG_S))


def test_an_error_behind_it_is_no_error() -> None:
    with pytest.raises(TimeOver), time_limit(0.05):
        try:
            time.sleep(LONG_S)
        finally:
            raise tvm.error.RPCError("the call was cut in two")


def test_an_error_before_it_is_one() -> None:
    with pytest.raises(UsageError), time_limit(LONG_S):
        raise UsageError("wrong")


def test_another_thread_has_no_time_limit() -> None:
    refused: list[UsageError] = []

    def limited() -> None:
        try:
            with time_limit(1.0):
                pass
        except UsageError as error:
            refused.append(error)

    thread = threading.Thread(target=limited)
    thread.start()
    thread.join()
    assert len(refused) == 1
