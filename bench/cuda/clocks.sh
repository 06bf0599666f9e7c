#!/bin/bash
# Runs a command and prints, below what it prints, how the first card's clocks, power and temperature were
# meanwhile. usage: bench/cuda/clocks.sh COMMAND…
set -u
command -v nvidia-smi >/dev/null || exec "$@"
samples=$(mktemp) && trap 'rm -f "$samples"' EXIT
nvidia-smi -i 0 --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv,noheader,nounits \
    -lms 200 >"$samples" 2>/dev/null &
watcher=$!
"$@"
code=$?
kill "$watcher" 2>/dev/null
wait "$watcher" 2>/dev/null
name=(SM memory power temperature) unit=(MHz MHz W C)
printf 'meanwhile (median, from .. to):'
for k in 0 1 2 3; do
    cut -d, -f$((k + 1)) "$samples" | grep -E '^ *[0-9.]+ *$' | sort -n |
        awk -v name="${name[k]}" -v unit="${unit[k]}" '
        { value[NR] = $1 }
        END { if (NR) printf "  %s %d (%d .. %d) %s", name, value[int((NR + 1) / 2)], value[1], value[NR],
            unit }'
done
echo
exit "$code"
