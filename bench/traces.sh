#!/usr/bin/env bash
# traces.sh: reads PyTorch profiler traces with tandem and with a reader that shares no code with it
# (bench/traces.py), and compares kernels, steps, compute and communication to 1 us. Exit code 1 where one
# differs.
# usage: bench/traces.sh FOLDER         all *.json and *.json.gz in it, also in folders within
set -eu -o pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
folder=${1:?usage: bench/traces.sh FOLDER}
tandem=${TANDEM_BUILD:-$here/build}/tandem
[ -x "$tandem" ] ||
    { echo "there is no $tandem: make, or TANDEM_BUILD names the folder of a build" >&2; exit 2; }
mapfile -d '' -t files < <(find "$folder" -type f \( -name '*.json' -o -name '*.json.gz' \) -print0 | sort -z)
[ "${#files[@]}" -gt 0 ] ||
    { echo "there are no *.json and *.json.gz in $folder" >&2; exit 2; }
exec python3 "$here/bench/traces.py" "$tandem" "${files[@]}"
