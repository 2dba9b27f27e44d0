#!/bin/sh
# A browser, in which tests open the pages that `tvm-codl report` writes.  Quiet and quick where there is one already; needs
# root where there is not.
set -eu

command -v chromium >/dev/null 2>&1 && exit 0
"$(dirname "$0")/packages.sh" browser.sh chromium
