"""Networks by name: ``zoo:NAME``."""

from __future__ import annotations

from tvm_codl.errors import UserError
from tvm_codl.frontend.zoo import ppocr_det, resnet18, small
from tvm_codl.frontend.zoo.entry import ZooEntry

ENTRIES = (resnet18.ENTRY, ppocr_det.ENTRY, small.ENTRY)


def entry(name: str) -> ZooEntry:
    """The network called ``name``.  Raises :class:`UserError` with the names there are."""
    for known in ENTRIES:
        if known.name == name:
            return known
    names = ", ".join(f"zoo:{known.name}" for known in ENTRIES)
    raise UserError(f"the zoo has no model {name!r}", f"it has {names}", "")
