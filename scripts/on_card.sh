#!/bin/bash
# All that is to be known of one card, in one call of at most ten minutes: what is found, the tests, the
# speeds, steps beside PyTorch's, profiles and predictions beside runs, a run beside the CPU. Each part has a
# time limit of its own, and one that fails does not stop the next. Runs in a checkout where `make` and `make
# test-cuda` have been, or out of build/card-kit.tar.gz (make card-kit), which brings all libraries but
# NVIDIA's. Writes tables and a log, and profiles/measured/CARD.sql, into a folder. Exit code: 0 where all was
# done, 1 where a part failed or was stopped, 4 where something that it needs is missing. usage:
# scripts/on_card.sh [FOLDER]     [$OUT, or on_card_out]; SECONDS_IN_ALL [570]; DEVICE [cuda:0] of profiles
# and steps
set -u
PATH=$PATH:/usr/sbin:/sbin # ldconfig
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${1:-${OUT:-on_card_out}}")
mkdir -p "$out" || exit 5
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
if [ ! -x "$root/build/tandem" ]; then
    kit=$root/build/card-kit.tar.gz
    [ -f "$kit" ] ||
        {
            echo "neither build/tandem nor build/card-kit.tar.gz is here:" \
                "run make card-kit where CUDA Toolkit and the libraries are"
            exit 4
        }
    tar -xzf "$kit" -C "$work" || exit 5
    "$work/card-kit/scripts/on_card.sh" "$out"
    exit
fi
exec > >(tee "$out/log.txt") 2>&1
log=$!
limit_in_all=${SECONDS_IN_ALL:-570}
tandem=$work/tandem programs=$root/build/card device=${DEVICE:-cuda:0}
export TANDEM_DB=$work/tandem.db
cd "$work" || exit 5

# --- Libraries: those of the kit, those of the compiler where the machine has none, NVIDIA's wherever they
# are ---
known() { ldconfig -p | grep -F "$1 " >/dev/null; }
folders_of_python() {
    python3 -c 'import glob, sys
print(*(f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")), sep="\n")' 2>/dev/null
}
path=
if [ -f "$root/needs" ]; then
    needed=$(sed -n 's/^glibc //p' "$root/needs") here=$(getconf GNU_LIBC_VERSION | sed 's/^glibc //')
    if [ "$(printf '%s\n' "$needed" "$here" | sort -V | head -n 1)" != "$needed" ]; then
        echo "this machine has glibc $here; what is in the kit was built where it is $needed:" \
            "build it here, or where it is no newer"
        exit 4
    fi
    path=$root/lib
    known libstdc++.so.6 && known libgomp.so.1 || path=$path:$root/gcc
fi
for library in libcuda.so.1 libcudart.so.13 libcublasLt.so.13 libcudnn.so.9; do
    known $library && continue
    for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /usr/local/nvidia/lib* \
        $(folders_of_python); do
        [ -e "$folder/$library" ] && path=${path:+$path:}$folder && break
    done
done
# For our programs alone: PyTorch has libraries of its own.
path=$path${LD_LIBRARY_PATH:+${path:+:}$LD_LIBRARY_PATH}
printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/build/tandem "$@"\n' "$path" "$root" >"$work/tandem"
chmod +x "$work/tandem"

# --- Parts ---
# A part is a session of its own, of which nothing is left behind: limits within it make groups that its own
# limit does not reach.
end_session() { # LEADER
    local stat pid line field
    for stat in /proc/[0-9]*/stat; do
        pid=${stat#/proc/} pid=${pid%/stat}
        { read -r line <"$stat"; } 2>/dev/null || continue
        read -ra field <<<"${line##*) }" # state, parent, group, session
        [ "${field[3]}" != "$1" ] || kill -KILL "$pid" 2>/dev/null
    done
}
leader='' ended=0 # of the part that runs, of the one before
failed=() missing_parts=()
lack() { missing_parts+=("$1"); } # NAME: a part that cannot be done here
trap 'exit 143' TERM INT HUP
# After the wait the log is whole.
trap '[ -z "$leader" ] || end_session "$leader"; rm -rf "$work"; exec >&- 2>&-; wait "$log"' EXIT
# part NAME LIMIT FILE COMMAND…: what it prints goes into FILE of the folder as it comes, then into the log.
part() {
    local left=$((limit_in_all - SECONDS)) limit=$2 begin=$SECONDS code told
    echo
    if [ "$left" -lt 5 ]; then
        echo "=== $1: not done: no time is left of $limit_in_all s"
        failed+=("$1")
        return
    fi
    [ "$limit" -le "$left" ] || limit=$left
    echo "=== $1"
    touch "$out/$3"
    told=$(stat -c %s "$out/$3")
    setsid timeout -k 5 "$limit" "${@:4}" >>"$out/$3" 2>&1 </dev/null &
    leader=$!
    wait "$leader"
    code=$? ended=$code
    end_session "$leader"
    leader=
    tail -c +$((told + 1)) "$out/$3"
    case $code in
    0) ;;
    4) lack "$1" ;;
    *) failed+=("$1") ;;
    esac
    case $code in
    124 | 137) code="stopped after $limit s" ;;
    *) code="exit code $code" ;;
    esac
    echo "--- $1: $code, $((SECONDS - begin)) s"
}
rm -f "$out"/{doctor,tests,speeds,steps,compare,hybrid}.txt

date -u
uname -a
timeout 20 nvidia-smi -i 0 2>/dev/null || echo "no nvidia-smi here, or no card"
part "what is found" 20 doctor.txt "$tandem" doctor
part "tests" 170 tests.txt env "LD_LIBRARY_PATH=$path" TEST_TIMEOUT=90 CUBLASLT_LOG_LEVEL=1 \
    "CUBLASLT_LOG_FILE=$work/cublaslt.log" \
    CUDNN_LOGLEVEL_DBG=1 "CUDNN_LOGDEST_DBG=$work/cudnn.log" "$root/scripts/test_cuda.sh" "$programs" tests
[ "$ended" = 0 ] || tail -v -n 30 "$work"/cu*.log 2>/dev/null # what the libraries say of it themselves
missing=$(LD_LIBRARY_PATH=$path ldd "$programs/bench_card" | awk '/not found/ { printf "%s ", $1 }')
if [ -n "$missing" ]; then
    printf '\n=== speeds: SKIP: %snot found; they come with CUDA Toolkit 13 and cuDNN 9\n' "$missing"
    lack speeds
else
    part "speeds" 90 speeds.txt env "LD_LIBRARY_PATH=$path" "$root/bench/cuda/clocks.sh" \
        "$programs/bench_card"
fi
timeout 60 "$tandem" bench step -q --model mlp --device "$device" --uniform bf16 --repetitions 1 >/dev/null
runs=$?
if [ $runs = 0 ]; then
    part "steps beside PyTorch" 190 steps.txt env ONE_LIMIT=40 "$root/bench/cuda/clocks.sh" \
        "$root/bench/cuda/steps.sh" "$tandem" "$device"
    for cpu in cpu:avx512_bf16 cpu:avx512_vnni cpu:avx512 cpu:avx2_vnni cpu:avx2 cpu:avx cpu:sse41; do
        grep -qE "^$cpu +ok" "$out/doctor.txt" && break
    done
    cluster="$device batch=256 + $cpu batch=16"
    part "graphs on $device" 20 hybrid.txt "$root/bench/cuda/same_losses.sh" "$tandem" "$device batch=32" \
        gpt_tiny
    part "graphs on $cluster" 30 hybrid.txt "$root/bench/cuda/same_losses.sh" "$tandem" "$cluster" resnet20
    part "all-reduces on $cluster" 30 hybrid.txt "$tandem" bench allreduce --cluster "$cluster" \
        --repetitions 5
    grep -q 'all-reduce in shared memory' "$out/hybrid.txt" ||
        export TANDEM_ALLREDUCE=network # the driver locks none, as it says
    part "all-reduces on $cluster over the network" 30 hybrid.txt env TANDEM_ALLREDUCE=network \
        "$tandem" bench allreduce -q --cluster "$cluster" --repetitions 5
    part "profile of $cluster" 40 hybrid.txt "$tandem" profile -q --model resnet20 --cluster "$cluster"
    part "resnet20 on $cluster" 20 hybrid.txt "$tandem" compare -q --model resnet20 --cluster "$cluster" \
        --uniform bf16,fp32 --steps 20
    for one in "resnet20 128 30" "bert_base:seq=128 32 60" "resnet50 64 90" "gpt_tiny 32 30" \
        "vit_tiny 64 30"; do
        read -r model batch limit <<<"$one"
        part "profile of $model" "$limit" compare.txt "$tandem" profile -q --model "$model" --batch \
            "$batch" --device "$device"
        for precision in bf16 fp8 int8_full fp32; do
            part "$model in $precision, predicted and run" 15 compare.txt \
                "$tandem" compare -q --model "$model" --batch "$batch" --device "$device" --uniform \
                    $precision --steps 20
        done
        part "profile of a mixed plan of $model" 20 compare.txt "$tandem" profile -q --model "$model" \
            --batch "$batch" --device "$device" \
            --uniform random --seed 1
        part "$model in a mixed plan, predicted and run" 15 compare.txt "$tandem" compare -q --model \
            "$model" --batch "$batch" \
            --device "$device" --uniform random --seed 1 --steps 20
        part "$model in bf16, profiled in graphs and launched kernel by kernel" 15 compare.txt env \
            TANDEM_GRAPHS=0 \
            "$tandem" compare -q --model "$model" --batch "$batch" --device "$device" --uniform bf16 \
                --steps 20
    done
else
    echo
    echo "=== profiles, predictions, steps: SKIP: $device runs no step here (exit code $runs)," \
        "as it says above"
    if [ $runs = 4 ]; then lack "steps on $device"; else failed+=("a step on $device"); fi
fi
part "sanitizer" 240 tests.txt env "LD_LIBRARY_PATH=$path" SANITIZER_TIMEOUT=40 \
    "$root/scripts/test_cuda.sh" "$programs" sanitizer

# --- The store, as text ---
card=$(nvidia-smi -i 0 --query-gpu=name --format=csv,noheader 2>/dev/null | tr 'A-Z ' 'a-z_' |
    tr -cd 'a-z0-9_.-')
if [ -n "$card" ] && [ -s "$TANDEM_DB" ]; then
    mkdir -p "$out/profiles/measured"
    python3 -c 'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).iterdump(), sep="\n")' "$TANDEM_DB" \
        >"$out/profiles/measured/$card.sql" 2>/dev/null ||
            sqlite3 "$TANDEM_DB" .dump >"$out/profiles/measured/$card.sql" ||
        failed+=("the store as text")
    echo "profiles/measured/$card.sql: $(wc -c <"$out/profiles/measured/$card.sql") bytes"
fi
echo "$SECONDS s in all"
[ ${#missing_parts[@]} = 0 ] || { echo "could not be done here:"; printf '  %s\n' "${missing_parts[@]}"; }
[ ${#failed[@]} = 0 ] || { echo "failed, or not done in time:"; printf '  %s\n' "${failed[@]}"; exit 1; }
[ ${#missing_parts[@]} = 0 ] || exit 4
