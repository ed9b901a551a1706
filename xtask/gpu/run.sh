#!/usr/bin/env bash
# Checks RADRM on this machine's GPU: run.sh OUT [--only STEP,...] [--budget SECONDS]
# Everything that is needed lies beside this file. Writes OUT/result.json and OUT/summary.md after each step.
set -u
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -lt 1 ]; then
    echo "usage: $0 OUT [--only STEP,...] [--budget SECONDS]" >&2
    exit 2
fi
if ! command -v "${RADRM_GPU_PYTHON:-python3}" >/dev/null; then
    mkdir -p "$1"
    echo "python3 is not here, so that nothing was checked" | tee "$1/summary.md" >&2
    exit 1
fi
# A copy may have lost what may be executed.
chmod +x "$here"/bin/* 2>/dev/null
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
exec "${RADRM_GPU_PYTHON:-python3}" "$here/check/main.py" "$@"
