# %% [markdown]
# # 5. A phone over the proxy
#
# A phone behind a network address translation cannot be connected to; it can only connect out. TVM's proxy is for that: phone and
# computer both connect to it, and it pairs those with the same key. Here all three are processes of this machine.
# [remote/](remote/README.md) tunes a matrix product on such a phone, and says how to start a real one.
#
# TVM RPC has no authentication and runs whatever it is sent. Everything here stays on 127.0.0.1.

# %%
import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import altair as alt
import numpy as np

import tvm_codl as codl
from tvm_codl.errors import DeviceError

KEY = "tutorial"
BUDGET_S = 2
OUT = Path("build/tutorials")
OUT.mkdir(parents=True, exist_ok=True)
closing = contextlib.ExitStack()  # what is started here is ended here, also after an error
atexit.register(closing.close)


def start(*line: str, **options: object) -> subprocess.Popen[str]:
    """A process in a group of its own: TVM's launchers leave a worker behind when only they are ended."""
    process = subprocess.Popen([sys.executable, "-m", *line], text=True, start_new_session=True, **options)
    closing.callback(process.wait)
    closing.callback(os.killpg, process.pid, signal.SIGTERM)
    return process


# %% [markdown]
# ## The proxy
#
# `--web-port 0`: else it also listens on port 8888 of all interfaces.

# %%
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
address = ("--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1), "--web-port", "0")
start("tvm.exec.rpc_proxy", *address, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for _ in range(300):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        break
    time.sleep(0.1)

# %% [markdown]
# ## The phone
#
# `tvm-codl serve --proxy 127.0.0.1:PORT --key tutorial` in a terminal does the same. It prints one line of JSON when it serves.

# %%
serve = ("tvm_codl", "serve", "--proxy", f"127.0.0.1:{port}", "--key", KEY)
phone = start(*serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
print(phone.stdout.readline().strip())

# %% [markdown]
# ## A session through the proxy
#
# Only the place differs: `codl.Proxy` names the proxy and the key, `codl.Tracker` a tracker. What the session does is as in the
# first tutorial.

# %%
model = codl.load_model("zoo:small")
network = codl.prepare(model)
inputs = model.sample_inputs()
place = codl.Proxy("127.0.0.1", port, KEY)
with codl.connect(place, log=print) as session:
    print(f"connected to {session.phone.where}: {session.profile.name}, GPU {session.profile.gpu_name}")
    plan = session.plan(network, budget_s=BUDGET_S, check=False)
    module = session.open_plan(network, plan)
    outputs = module.run(inputs)
    samples = module.benchmark(number=10, repeat=30)
wanted = model.reference(inputs)
error = max(np.abs(got - right).max() / np.abs(right).max() for got, right in zip(outputs, wanted, strict=True))
print(f"largest error against the reference: {error:.1e}")
assert error < 1e-3

# %% [markdown]
# ## The times of a run
#
# The phone takes them itself, so they contain no messages of the network between.

# %%
chart = (
    alt.Chart(alt.Data(values=[{"ms": ms} for ms in samples]), title="runs on the phone, each the mean of ten")
    .mark_bar()
    .encode(x=alt.X("ms:Q", bin=alt.Bin(maxbins=20), title="ms"), y=alt.Y("count()", title="samples"))
)
chart.save(OUT / "proxy.svg")
chart  # noqa: B018 - a notebook shows it

# %% [markdown]
# ## Close everything
#
# Afterwards nobody serves there, and an attempt to connect says so.

# %%
closing.close()
try:
    with codl.connect(place):
        pass
except DeviceError as refusal:
    print(refusal)

# %% [markdown]
# Next: [a planner of your own](06_your_own_planner.py).
