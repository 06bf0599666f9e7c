#!/bin/bash
# What is to be known of a card, in three calls of at most 560 s each: 1, is it right? 2, how fast is it? 3,
# is it predicted well, and does it hold beside a CPU? Parts come in the order of their importance, each with
# a limit of its own; one that fails does not stop the next. docs/cuda.md says what a failure means. Runs in a
# checkout where `make` and `make test-cuda` have been, or out of build/card-kit.tar.gz (make card-kit), which
# brings all libraries but NVIDIA's. All that is printed is in FOLDER too: N.log whole, and a file for each
# kind of part. Call 3 takes what call 2 profiled from FOLDER/tandem.db. Exit code: 0 where all was done, 1
# where a part failed or was stopped, 2 for other arguments, 4 where something that it needs is missing, 5
# where the folder cannot be written. usage: scripts/on_card.sh 1|2|3 [FOLDER]     [$OUT, or on_card_out];
# SECONDS_IN_ALL [550]; DEVICE [cuda:0]
set -u
PATH=$PATH:/usr/sbin:/sbin:/usr/local/cuda/bin # ldconfig, compute-sanitizer, ncu
call=${1:-}
[[ $call == [123] ]] || {
    echo "usage: scripts/on_card.sh 1|2|3 [FOLDER]: is it right, how fast is it, is it predicted well" >&2
    exit 2
}
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${2:-${OUT:-on_card_out}}")
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
    "$work/card-kit/scripts/on_card.sh" "$call" "$out"
    exit
fi
exec > >(tee "$out/$call.log") 2>&1
log=$!
limit_in_all=${SECONDS_IN_ALL:-550} # parts that are stopped may take 5 s more
tandem=$work/tandem programs=$root/build/card device=${DEVICE:-cuda:0}
export TANDEM_DB=$out/tandem.db
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
leader='' # of the part that runs
failed=() missing_parts=() begun=()
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
    echo "=== $1 (at most $2 s)"
    [[ " ${begun[*]} " == *" $3 "* ]] || { begun+=("$3") && : >"$out/$3"; }
    told=$(stat -c %s "$out/$3")
    setsid timeout -k 5 "$limit" "${@:4}" >>"$out/$3" 2>&1 </dev/null &
    leader=$!
    wait "$leader"
    code=$?
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
ours() { env "LD_LIBRARY_PATH=$path" "$@"; } # a program of ours that is not tandem itself

# --- 1: is it right? What decides first comes first: kernels, then operators, then whole steps ---
test_program() { # NAME LIMIT
    part "test_cuda_$1" "$2" 1-tests.txt env "LD_LIBRARY_PATH=$path" CMOCKA_MESSAGE_OUTPUT=TAP \
        CUBLASLT_LOG_LEVEL=1 "CUBLASLT_LOG_FILE=$out/1-cublaslt.log" CUDNN_LOGLEVEL_DBG=1 \
        "CUDNN_LOGDEST_DBG=$out/1-cudnn.log" "$programs/test_cuda_$1"
}
sanitize() { # TOOL LIMIT PROGRAM ARGUMENT…
    part "$1 of ${3#test_cuda_}" "$2" 1-sanitizer.txt env "LD_LIBRARY_PATH=$path" "$sanitizer" --tool "$1" \
        --error-exitcode 9 "$programs/$3" "${@:4}"
}
is_it_right() {
    printf '\n%s\n' "$found" | tee "$out/1-doctor.txt"
    test_program kernels 40
    test_program rows 20
    test_program images 10
    test_program operators 80
    test_program attention 25
    for graphs in 1 0; do
        part "five steps of mlp, graphs $graphs" 12 1-mlp.txt env TANDEM_GRAPHS=$graphs "$tandem" train -q \
            --json --model mlp --device "$device" --uniform bf16 --steps 5
    done
    test_program gradients 40
    test_program public_kernels 15
    test_program products 10
    test_program delayed 15
    test_program coded 10
    test_program shared 15
    test_program repeats 75
    sanitizer=$(command -v compute-sanitizer)
    if [ -n "$sanitizer" ]; then
        sanitize memcheck 55 test_cuda_kernels
        sanitize memcheck 30 test_cuda_attention
        sanitize racecheck 45 test_cuda_repeats small
        sanitize racecheck 40 test_cuda_attention
    else
        printf '\n=== compute-sanitizer: SKIP: not installed; it comes with CUDA Toolkit 13\n'
        lack compute-sanitizer
    fi
    grep -hE '^(not ok|wrong:)' "$out/1-tests.txt" >"$out/1-wrong.txt"
    echo
    echo "$(grep -c '^ok' "$out/1-tests.txt") tests passed, $(grep -c '^not ok' "$out/1-wrong.txt") did not"
}

# --- 2: how fast is it? ---
how_fast() {
    PYTHON=$("$root/bench/cuda/steps.sh" python) # once: PyTorch takes seconds to be loaded
    export PYTHON
    part "kernels, products and a layer beside the card's copy" 110 2-speeds.txt env "LD_LIBRARY_PATH=$path" \
        "$programs/bench_gpu" "$device"
    for one in "resnet50 110" "bert_base 130" "gpt2_small 130" "resnet20 35" "gpt_tiny 35"; do
        read -r model limit <<<"$one"
        part "a step of $model beside PyTorch's" "$limit" 2-steps.txt env ONE_LIMIT=25 \
            "$root/bench/cuda/clocks.sh" "$root/bench/cuda/steps.sh" "$tandem" "$device" "$model"
    done
}

# --- 3: is it predicted well, and does it hold beside a CPU? ---
predict() { # MODEL BATCH PRECISION [OPTION…]
    local file=3-compare.txt
    [ -z "${4:-}" ] || file=3-operators.txt
    part "$1 in $3${4:+, by operators}, predicted and run" 12 $file "$tandem" compare -q --model "$1" \
        --batch "$2" --device "$device" --uniform "$3" --steps 20 "${@:4}"
}
same_losses() { # CLUSTER MODEL [OPTION…]
    part "bits of $2 on $1${3:+, ${*:3}}" 30 3-hybrid.txt "$root/bench/cuda/same_losses.sh" "$tandem" "$@"
}
does_it_predict() {
    for cpu in cpu:avx512_bf16 cpu:avx512_vnni cpu:avx512 cpu:avx2_vnni cpu:avx2 cpu:avx cpu:sse41; do
        grep -qE "^$cpu +ok" <<<"$found" && break
    done
    local cluster="$device batch=256 + $cpu batch=16" one model batch limit precision
    for one in "bert_base:seq=128 64" "resnet50 128" "gpt2_small:seq=1024 16"; do
        read -r model batch <<<"$one"
        part "profile of $model" 25 3-compare.txt "$tandem" profile -q --model "$model" --batch "$batch" \
            --device "$device" --uniform bf16 # known already behind call 2
        predict "$model" "$batch" bf16
    done
    predict bert_base:seq=128 64 bf16 --operators
    part "profile of gpt_tiny" 40 3-compare.txt "$tandem" profile -q --model gpt_tiny --batch 32 --device \
        "$device"
    for precision in bf16 fp8 int8_full fp32; do predict gpt_tiny 32 $precision; done
    same_losses "$device batch=32" gpt_tiny
    same_losses "$cluster" resnet20
    same_losses "$cluster" gpt_tiny --wire bf16
    part "profile of $cluster" 40 3-hybrid.txt "$tandem" profile -q --model resnet20 --cluster "$cluster"
    part "resnet20 on $cluster, predicted and run" 20 3-hybrid.txt "$tandem" compare -q --model resnet20 \
        --cluster "$cluster" --uniform bf16,fp32 --steps 20
    # In the profile of the cluster the card has the same batch.
    for precision in bf16 fp8 int8_full fp32; do predict resnet20 256 $precision; done
    part "all-reduces on $cluster" 25 3-hybrid.txt "$tandem" bench allreduce --cluster "$cluster" \
        --repetitions 5
    part "memory of bert_base" 25 3-memory.txt "$tandem" train -q --json --model bert_base:seq=128 --batch \
        64 --device "$device" --uniform bf16 --steps 20
    ncu=$(command -v ncu)
    if [ -n "$ncu" ]; then
        part "names of kernels in a step of bert_base" 40 3-ncu.txt env TANDEM_GRAPHS=0 "$ncu" \
            --clock-control none -k 'regex:xmma|nvjet|cutlass|gemm|conv|attention' -c 60 \
            --metrics gpu__time_duration.sum "$tandem" bench step -q --device "$device" --uniform bf16 \
            --repetitions 1 --model bert_base:seq=128 --batch 64
    else
        printf '\n=== ncu: SKIP: not installed; it comes with CUDA Toolkit 13\n'
        lack ncu
    fi
    echo
    sed -n 's/^step predicted .*: error -*\([0-9.]*\)%$/\1/p' "$out"/3-{compare,hybrid}.txt |
        awk '{ n++; near += $1 <= 5 }
            END { printf "%d of %d steps were predicted within 5%%\n", near, n }'
}

date -u
uname -a
timeout 20 nvidia-smi -i 0 2>/dev/null || echo "no nvidia-smi here, or no card"
missing=$(ours ldd "$programs/test_cuda_kernels" "$programs/bench_gpu" |
    awk '/not found/ && !seen[$1]++ { printf "%s ", $1 }')
if [ -n "$missing" ]; then
    printf '\n=== SKIP: %snot found; they come with CUDA Toolkit 13, cuDNN 9 and libcmocka0\n' "$missing"
    lack "libraries"
elif found=$(timeout 60 "$tandem" doctor 2>&1); ! grep -qE "^$device +ok" <<<"$found"; then
    printf '\n=== SKIP: %s cannot be used here: %s\n' "$device" \
        "$(grep -E "^$device " <<<"$found" || echo "tandem doctor does not list it")"
    lack "$device"
else
    case $call in
    1) is_it_right ;;
    2) how_fast ;;
    3) does_it_predict ;;
    esac
fi

# --- The store, as text ---
card=$(nvidia-smi -i 0 --query-gpu=name --format=csv,noheader 2>/dev/null | tr 'A-Z ' 'a-z_' |
    tr -cd 'a-z0-9_.-')
if [ "$call" = 3 ] && [ -n "$card" ] && [ -s "$TANDEM_DB" ]; then
    mkdir -p "$out/profiles/measured"
    # A dump lacks the two numbers by which a store is known.
    { python3 -c 'import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
for pragma in "application_id", "user_version":
    print("PRAGMA %s = %d;" % (pragma, *store.execute("PRAGMA " + pragma).fetchone()))
print(*store.iterdump(), sep="\n")' "$TANDEM_DB" 2>/dev/null ||
        sqlite3 "$TANDEM_DB" "SELECT 'PRAGMA application_id = ' || application_id ||
'; PRAGMA user_version = ' || user_version || ';' FROM pragma_application_id, pragma_user_version" .dump; } \
        >"$out/profiles/measured/$card.sql" || failed+=("the store as text")
    echo "profiles/measured/$card.sql: $(wc -c <"$out/profiles/measured/$card.sql") bytes"
fi
echo "$SECONDS s in all"
[ ${#missing_parts[@]} = 0 ] || { echo "could not be done here:"; printf '  %s\n' "${missing_parts[@]}"; }
[ ${#failed[@]} = 0 ] || { echo "failed, or not done in time:"; printf '  %s\n' "${failed[@]}"; exit 1; }
[ ${#missing_parts[@]} = 0 ] || exit 4
