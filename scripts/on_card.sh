#!/bin/bash
# What is to be known of a card, in three calls of at most 200, 200 and 180 s: 1, is it right? 2, how fast is
# it? 3, is it predicted, and does it hold beside a CPU? Parts come in the order of their importance, each
# with a limit of its own; one that fails does not stop the next. What measures no time runs beside others.
# `all` makes the three calls in one of at most 575 s, for a card that is lent for one command, and writes one
# file: FOLDER/on_card.tar.gz. It is renewed every two seconds and always whole, also where all is killed.
# docs/cuda.md says what a failure means. Runs in a checkout where `make` and `make test-cuda` have been, or
# out of build/card-kit.tar.gz (make card-kit), which brings all libraries but NVIDIA's. All that is printed
# is in FOLDER too: N.log whole, and a file for each kind of part; unfinished/N has what still runs. Call 3
# takes what call 2 profiled from FOLDER/tandem.db. Exit code: 0 where all was done, 1 where a part failed or
# was stopped, 2 for other arguments, 4 where something that it needs is missing, 5 where the folder cannot be
# written.
# usage: scripts/on_card.sh 1|2|3|all [FOLDER]     [$OUT, or on_card_out]; SECONDS_IN_ALL [200, 200, 180;
# all: 570]: what is stopped then may take 5 s more; DEVICE [cuda:0]; JOBS: parts beside each other [the cores
# but two]
set -u
PATH=$PATH:/usr/sbin:/sbin:/usr/local/cuda/bin # ldconfig, compute-sanitizer, ncu
call=${1:-}
case $call in
1 | 2) limit_in_all=200 ;;
3) limit_in_all=180 ;;
all) limit_in_all=570 ;;
*)
    echo "usage: scripts/on_card.sh 1|2|3|all [FOLDER]: is it right, how fast is it, is it predicted well" >&2
    exit 2
    ;;
esac
limit_in_all=${SECONDS_IN_ALL:-$limit_in_all} # parts that are stopped may take 5 s more
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(realpath -m "${2:-${OUT:-on_card_out}}")
mkdir -p "$out" || exit 5
unpacked=${ON_CARD_UNPACKED:-} # by the call that unpacked this script
unset ON_CARD_UNPACKED
work=$(mktemp -d) && trap 'clear_work' EXIT
clear_work() { rm -rf "$work" ${unpacked:+"$unpacked"}; }
if [ ! -x "$root/build/tandem" ]; then
    kit=$root/build/card-kit.tar.gz
    [ -f "$kit" ] ||
        {
            echo "neither build/tandem nor build/card-kit.tar.gz is here:" \
                "run make card-kit where CUDA Toolkit and the libraries are"
            exit 4
        }
    tar -xzf "$kit" -C "$work" || exit 5
    ON_CARD_UNPACKED=$work SECONDS_IN_ALL=$((limit_in_all - SECONDS)) exec \
        "$work/card-kit/scripts/on_card.sh" "$call" "$out"
fi

# --- All three calls, and one file of what they write ---
results=$work/on_card packed=$out/on_card.tar.gz
# The file is renewed under another name, where something has changed: it is whole at every moment.
pack() {
    [ ! -e "$work/packed" ] || [ -n "$(find "$results" -newer "$work/packed" -print -quit)" ] || return 0
    touch "$work/packed"
    nice tar -C "$work" -I 'gzip -1' -cf "$packed.new" on_card 2>/dev/null
    [ $? -le 1 ] && mv -f "$packed.new" "$packed" # 1: a file changed meanwhile
}
keep_packing() { # until TERM comes, or this script is killed
    local stop=
    trap 'stop=1' TERM
    trap - EXIT
    while [ -z "$stop" ] && kill -0 $$ 2>/dev/null; do
        pack
        sleep 2 &
        wait $!
    done
}
# Calls share the seconds in the ratio of their limits; what one leaves is the next ones'. Its parts end 5 s
# after its limit, then it is ended by TERM and KILL: 3 s after all seconds at the latest.
all_calls() {
    local one limit code worst=0 shares=(0 200 200 180) rest=580 packer running='' is_ended=''
    mkdir -p "$results"
    keep_packing >/dev/null 2>&1 </dev/null &
    packer=$!
    trap 'is_ended=1; [ -z "$running" ] || kill "$running" 2>/dev/null' TERM INT HUP
    for one in 1 2 3; do
        [ -z "$is_ended" ] || break
        limit=$(((limit_in_all - SECONDS) * shares[one] / rest - 5))
        rest=$((rest - shares[one]))
        printf '\n===== call %d (at most %d s)\n' $one $limit
        SECONDS_IN_ALL=$limit timeout -k 2 $((limit < 1 ? 1 : limit + 6)) "$root/scripts/on_card.sh" $one \
            "$results" >/dev/null 2>&1 </dev/null &
        running=$!
        [ -z "$is_ended" ] || kill "$running"
        wait $running
        code=$?
        [ -z "$is_ended" ] || { wait $running && code=143; }
        running=''
        [ $one != 1 ] || head -n 40 "$results/1-wrong.txt" 2>/dev/null
        [ $one != 2 ] || cat "$results/2-steps.txt" 2>/dev/null
        tail -n 40 "$results/$one.log"
        echo "===== call $one: exit code $code, after $SECONDS s in all"
        case $code in
        0) ;;
        4) [ $worst != 0 ] || worst=4 ;;
        *) worst=1 ;;
        esac
    done
    kill $packer
    wait $packer
    rm -f "$work/packed" # so that the last one is made
    pack || worst=5
    echo "$packed: $(stat -c %s "$packed") bytes"
    [ -z "$is_ended" ] || worst=143
    return $worst
}
if [ "$call" = all ]; then
    all_calls
    exit
fi

unfinished=$out/unfinished/$call # what parts beside each other have printed until now
rm -rf "$unfinished"
mkdir -p "$unfinished" || exit 5
# `timeout` ends all of a group: what is printed then is to be written, too.
exec > >(trap '' TERM INT HUP && exec tee "$out/$call.log") 2>&1
log=$!
jobs=${JOBS:-$(($(nproc) > 4 ? $(nproc) - 2 : 2))}
tandem=$work/tandem programs=$root/build/card device=${DEVICE:-cuda:0}
export TANDEM_DB=$out/tandem.db
cd "$work" || exit 5

# --- Libraries: those of the kit, those of the compiler where the machine has none, NVIDIA's wherever they
# are ---
known() { ldconfig -p | grep -F "$1 " >/dev/null; }
folders_of_python() { # NVIDIA's libraries, as PyTorch's wheels bring them
    local one
    for one in python3 /usr/bin/python3; do
        "$one" -c 'import glob, sys
folders = (folder for path in sys.path for folder in sorted(glob.glob(path + "/nvidia/*/lib")))
print(*dict.fromkeys(folders), sep="\n")' 2>/dev/null | grep . && break
    done
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
first_with() { # LIBRARY FOLDER…: the first folder that has it
    local folder
    for folder in "${@:2}"; do [ -e "$folder/$1" ] && echo "$folder" && return; done
    return 1
}
add_folder() { [[ ":$path:" == *":$1:"* ]] || path=${path:+$path:}$1; }
# For our programs: what PyTorch brings comes first, also before what the system knows, so that steps beside
# PyTorch's have the same cuBLASLt and cuDNN. It counts where it is complete: half of it does not fit others.
# The driver is the system's.
nvidia=(libcudart.so.13 libcublasLt.so.13 libcudnn.so.9)
system_folders=(/usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib /usr/local/nvidia/lib*)
mapfile -t of_python < <(folders_of_python)
of_pytorch=()
for library in "${nvidia[@]}"; do
    folder=$(first_with "$library" "${of_python[@]}") && of_pytorch+=("$folder")
done
if [ ${#of_pytorch[@]} = ${#nvidia[@]} ]; then
    for folder in "${of_pytorch[@]}"; do add_folder "$folder"; done
else
    of_pytorch=()
    for library in "${nvidia[@]}"; do
        known "$library" && continue
        folder=$(first_with "$library" "${system_folders[@]}" "${of_python[@]}") && add_folder "$folder"
    done
fi
known libcuda.so.1 || { folder=$(first_with libcuda.so.1 "${system_folders[@]}") && add_folder "$folder"; }
path=$path${LD_LIBRARY_PATH:+${path:+:}$LD_LIBRARY_PATH}
# For Python: what it has itself, or the system, is not to be replaced, not by LD_LIBRARY_PATH either.
mkdir "$work/lib"
if [ -f "$root/needs" ]; then
    for library in "$root"/lib/* "$root"/gcc/*; do
        known "$(basename "$library")" || ln -s "$library" "$work/lib/"
    done
fi
beside_python=$work/lib
if [ -n "${LD_LIBRARY_PATH:-}" ]; then
    [ ${#of_pytorch[@]} = 0 ] || beside_python=$beside_python:$(IFS=: && echo "${of_python[*]}")
    beside_python=$beside_python:$LD_LIBRARY_PATH
fi
for program in tandem tandem-bench; do
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s/build/%s "$@"\n' "$path" "$root" $program >"$work/$program"
done
chmod +x "$tandem" "$tandem-bench"

# --- Parts ---
# A part is a session of its own, of which nothing is left: limits within it make groups that its own
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
failed=() missing_parts=() begun=() queue=() finder=''
rm -f "$out/$call-libraries.txt"
# Of what runs, by its leader.
declare -A name_of=() limit_of=() file_of=() log_of=() begin_byte_of=() begin_of=()
declare -A code_of=()                                                        # of what has ended, by its name
lack() { missing_parts+=("$1"); } # NAME: a part that cannot be done here
give_up() {                       # what runs ends, and what it has printed is kept
    local leader library
    [ -z "$finder" ] || kill "$finder" 2>/dev/null
    for leader in "${!name_of[@]}"; do
        end_session "$leader"
        [ "${log_of[$leader]}" = "$out/${file_of[$leader]}" ] ||
            { echo "=== ${name_of[$leader]}: the call ended" && cat "${log_of[$leader]}"; } |
            tee -a "$out/${file_of[$leader]}"
    done
    for library in "$unfinished"/*.{cublaslt,cudnn}; do
        [ ! -s "$library" ] || { echo "=== ${library##*/}" && cat "$library"; } >>"$out/1-libraries.txt"
    done
    rm -rf "$unfinished"
    rmdir "$out/unfinished" 2>/dev/null
    clear_work
}
# Where a signal interrupts a redirected command, bash keeps a copy of the output: with it open, the log would
# never end.
close_outputs() {
    local file
    exec >&- 2>&-
    for file in /proc/$$/fd/*; do
        [ "${file##*/}" -lt 10 ] || [ "${file##*/}" = 255 ] || eval "exec ${file##*/}>&-"
    done
}
trap 'exit 143' TERM INT HUP
trap 'give_up; close_outputs; wait "$log"' EXIT # after the wait the log is whole
# What a part leaves of its limit is the next one's: when they have to end, all limits so far added up.
may_end=0
lack_text=
# launch NAME LIMIT FILE LOG COMMAND…: $LOG gets what it prints. 1 where no time is left.
launch() {
    local limit=$2 left=$((limit_in_all - SECONDS)) n_byte=0
    if [ "$left" -lt 5 ]; then
        printf '\n=== %s: not done: no time is left of %s s\n' "$1" "$limit_in_all"
        failed+=("$1")
        return 1
    fi
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -ge 1 ] || limit=1 # those before it took long to end
    [[ " ${begun[*]} " == *" $3 "* ]] || { begun+=("$3") && : >"$out/$3"; }
    [ "$4" != "$out/$3" ] || n_byte=$(stat -c %s "$4")
    setsid timeout -k 5 "$limit" "${@:5}" >>"$4" 2>&1 </dev/null &
    leader=$!
    name_of[$leader]=$1 limit_of[$leader]=$limit file_of[$leader]=$3 log_of[$leader]=$4
    begin_byte_of[$leader]=$n_byte begin_of[$leader]=$SECONDS
}
report_end() { # LEADER CODE
    local name=${name_of[$1]} file=$out/${file_of[$1]} own=${log_of[$1]} code=$2
    end_session "$1"
    [ "$own" = "$file" ] ||
        { printf '\n=== %s, beside others\n' "$name" | tee -a "$file" && cat "$own" >>"$file"; }
    tail -c +$((begin_byte_of[$1] + 1)) "$own"
    [ "$own" = "$file" ] || rm -f "$own"
    code_of[$name]=$code
    case $code in
    0) ;;
    4) lack "$name" ;;
    *) failed+=("$name") ;;
    esac
    case $code in
    124 | 137) code="stopped after ${limit_of[$1]} s" ;;
    *) code="exit code $code" ;;
    esac
    echo "--- $name: $code, $((SECONDS - begin_of[$1])) s"
    unset "name_of[$1]"
}
# part NAME LIMIT FILE COMMAND…: what it prints goes into FILE of the folder as it comes, then into the log.
part() {
    local leader
    may_end=$((may_end + $2))
    launch "$1" $((may_end - SECONDS)) "$3" "$out/$3" "${@:4}" || return
    printf '\n=== %s (at most %s s)\n' "$1" "$2"
    wait "$leader"
    report_end "$leader" $?
}
beside() { queue+=("$(printf '%q ' "$@")"); } # NAME LIMIT FILE COMMAND…: a part for `together`
# together LIMIT: what `beside` has queued, JOBS at a time, begins in that order; each is reported when it
# ends.
together() {
    local next=0 pid leader words
    printf '\n=== %d parts beside each other, %d at a time (at most %d s)\n' ${#queue[@]} "$jobs" "$1"
    may_end=$((may_end + $1))
    while [ $next -lt ${#queue[@]} ] || [ ${#name_of[@]} -gt 0 ]; do
        while [ $next -lt ${#queue[@]} ] && [ ${#name_of[@]} -lt "$jobs" ]; do
            eval "words=(${queue[next]})"
            next=$((next + 1))
            [ "${words[1]}" -le $((may_end - SECONDS)) ] || words[1]=$((may_end - SECONDS))
            if [ "${words[1]}" -lt 1 ]; then
                printf '\n=== %s: not done: no time is left beside others\n' "${words[0]}"
                failed+=("${words[0]}")
            else
                launch "${words[@]:0:3}" "$unfinished/$next.${words[0]//[ \/]/_}.txt" "${words[@]:3}"
            fi
        done
        [ ${#name_of[@]} -gt 0 ] || continue
        wait -n -p pid "${!name_of[@]}"
        report_end "$pid" $?
    done
    queue=()
}
ours() { env "LD_LIBRARY_PATH=$path" "$@"; } # a program of ours that is not tandem itself

# --- 1: is it right? What decides first comes first: kernels, then operators, then whole steps ---
test_program() { # NAME LIMIT
    beside "test_cuda_$1" "$2" 1-tests.txt env "LD_LIBRARY_PATH=$path" CMOCKA_MESSAGE_OUTPUT=TAP \
        CUBLASLT_LOG_LEVEL=1 "CUBLASLT_LOG_FILE=$unfinished/$1.cublaslt" CUDNN_LOGLEVEL_DBG=1 \
        "CUDNN_LOGDEST_DBG=$unfinished/$1.cudnn" "$programs/test_cuda_$1"
}
sanitize() { # TOOL LIMIT NAME ARGUMENT…
    beside "$1 of $3" "$2" 1-sanitizer.txt env "LD_LIBRARY_PATH=$path" "$sanitizer" --tool "$1" \
        --error-exitcode 9 "$programs/test_cuda_$3" "${@:4}"
}
python_suite() { # NAME: in the PyTorch of this machine, with its own libraries of NVIDIA
    beside "Python package, $1" 80 1-python.txt env "LD_LIBRARY_PATH=$beside_python" OMP_NUM_THREADS=1 \
        PYTHONDONTWRITEBYTECODE=1 "$python" -X faulthandler "$root/tests/python/$1.py" -v
}
is_it_right() {
    local one words name limit graphs failed_first=
    printf '\n%s\n' "$found" | tee "$out/1-doctor.txt"
    for one in "kernels 60" "rows 30" "operators 90" "attention 40" "gradients 60" "products 30" "images 30" \
        "public_kernels 30" "delayed 30" "coded 30" "shared 30" "repeats 100"; do
        read -r name limit <<<"$one"
        test_program "$name" "$limit"
    done
    for graphs in 1 0; do
        beside "five steps of mlp, graphs $graphs" 20 1-mlp.txt env TANDEM_GRAPHS=$graphs "$tandem" train -q \
            --json --model mlp --device "$device" --uniform bf16 --steps 5
    done
    if [ -n "$python" ]; then
        beside "versions of PyTorch" 60 1-versions.txt "$python" -c 'import sys, torch
print("Python", sys.version, "PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())
print(torch.version.cuda, torch.__config__.show())'
        for one in cuda kernels modules planning estimate; do python_suite $one; done
    else
        lack "Python package: no python3 here has torch with a card"
    fi
    sanitizer=$(command -v compute-sanitizer)
    if [ -n "$sanitizer" ]; then
        for one in kernels attention delayed coded rows products; do sanitize memcheck 70 $one; done
        for one in attention "repeats small" coded delayed rows; do
            read -ra words <<<"$one"
            sanitize racecheck 70 "${words[@]}"
        done
    else
        printf '\n=== compute-sanitizer: SKIP: not installed; it comes with CUDA Toolkit 13\n'
        lack compute-sanitizer
    fi
    # What torch.compile makes stays in its cache, if the machine does until call 2.
    for one in "bert_base --batch 64 --seq 128 --turns labelled+sdpa+compile" \
        "gpt2_small --batch 16 --seq 1024 --turns sdpa+compile" \
        "resnet50 --batch 128 --channels-last --turns compile"; do
        read -ra words <<<"$one"
        [ -z "$python" ] || beside "PyTorch compiles ${words[0]}" 100 1-pytorch.txt nice "$python" \
            "$root/bench/torch/step.py" "${words[0]}" bf16 --device cuda --steps 1 "${words[@]:1}"
    done
    together 145
    grep -hE '^(not ok|wrong:)' "$out/1-tests.txt" >"$out/1-wrong.txt"
    echo
    echo "$(grep -c '^ok' "$out/1-tests.txt") tests passed, $(grep -c '^not ok' "$out/1-wrong.txt") did not"
    : >"$out/1-speeds.txt"
    begun+=(1-speeds.txt)
    for one in kernels operators attention; do
        [ "${code_of[test_cuda_$one]:--}" = 0 ] || failed_first+="${failed_first:+, }$one"
    done
    [ -z "$failed_first" ] ||
        printf '\n!!! %s did not pass: what follows may be the speed of wrong results\n' "$failed_first" |
        tee "$out/1-speeds.txt"
    part "first speeds" 15 1-speeds.txt env "LD_LIBRARY_PATH=$path" "$programs/bench_gpu" "$device" \
        $((1 << 26)) 2
    for one in "resnet50 128" "bert_base:seq=128 64" "gpt2_small:seq=1024 16"; do
        read -r name limit <<<"$one"
        part "first steps of $name" 10 1-speeds.txt "$tandem"-bench step -q --device "$device" --uniform \
            bf16 --repetitions 5 --model "$name" --batch "$limit"
    done
}

# --- The store, as text: after each part that may have measured, whole ----
keep_store() {
    local folder=$out/profiles/measured
    [ -n "$card" ] && [ -s "$TANDEM_DB" ] || return
    mkdir -p "$folder"
    # A dump lacks the two numbers by which a store is known.
    if python3 -c 'import sqlite3, sys
store = sqlite3.connect(sys.argv[1])
for pragma in "application_id", "user_version":
    print("PRAGMA %s = %d;" % (pragma, *store.execute("PRAGMA " + pragma).fetchone()))
print(*store.iterdump(), sep="\n")' "$TANDEM_DB" >"$folder/.text" 2>/dev/null ||
        sqlite3 "$TANDEM_DB" "SELECT 'PRAGMA application_id = ' || application_id ||
'; PRAGMA user_version = ' || user_version || ';' FROM pragma_application_id, pragma_user_version" .dump \
            >"$folder/.text"; then
        mv "$folder/.text" "$folder/$card.sql"
    else
        rm -f "$folder/.text"
        lack_text=1
    fi
}
profile() { # NAME LIMIT FILE OPTION…
    part "profile of $1" "$2" "$3" "$tandem" profile -q "${@:4}"
    keep_store
}

# --- 2: how fast is it? ---
steps_beside() { # NAME LIMIT PARTS MODEL…
    part "$1" "$2" 2-steps.txt env ONE_LIMIT=15 "PARTS=$3" "KEPT=$work" "PYTHON=$python" \
        "$root/bench/cuda/clocks.sh" "$root/bench/cuda/steps.sh" "$tandem" "$device" "${@:4}"
    keep_store
}
how_fast() {
    local model
    part "kernels, products and a layer beside the card's copy" 40 2-speeds.txt env \
        "LD_LIBRARY_PATH=$path" "$programs/bench_gpu" "$device"
    for model in resnet50 bert_base gpt2_small; do
        steps_beside "a step of $model beside PyTorch's" 34 steps $model
    done
    # Last, as it takes longest: compilers, not the card.
    steps_beside "steps that PyTorch compiles" 48 compiled bert_base gpt2_small resnet50
}

# --- 3: is it predicted, and does it hold beside a CPU? ---
predict() { # LIMIT MODEL BATCH PRECISION [OPTION…]
    local file=3-compare.txt
    [ -z "${5:-}" ] || file=3-operators.txt
    part "$2 in $4${5:+, by operators}, predicted and run" "$1" $file "$tandem" compare -q --model "$2" \
        --batch "$3" --device "$device" --uniform "$4" --steps 20 "${@:5}"
}
same_losses() { # CLUSTER MODEL [OPTION…]: on cores of its own, where there are so many
    local first=$((4 * ${#queue[@]})) held=()
    [ "$(nproc)" -lt 16 ] || held=(taskset -c "$first-$((first + 3))")
    beside "bits of $2 on $1${3:+, ${*:3}}" 28 3-hybrid.txt "${held[@]}" "$root/bench/cuda/same_losses.sh" \
        "$tandem" "$@"
}
does_it_predict() {
    local cpu cluster one model batch precision
    for cpu in cpu:avx512_bf16 cpu:avx512_vnni cpu:avx512 cpu:avx2_vnni cpu:avx2 cpu:avx cpu:sse41; do
        grep -qE "^$cpu +ok" <<<"$found" && break
    done
    cluster="$device batch=256 + $cpu batch=16"
    for one in "bert_base:seq=128 64" "resnet50 128" "gpt2_small:seq=1024 16"; do
        read -r model batch <<<"$one"
        profile "$model" 8 3-compare.txt --model "$model" --batch "$batch" --device "$device" --uniform \
            bf16 # known already after call 2
        predict 8 "$model" "$batch" bf16
    done
    predict 8 bert_base:seq=128 64 bf16 --operators
    profile gpt_tiny 20 3-compare.txt --model gpt_tiny --batch 32 --device "$device"
    for precision in bf16 fp8 int8_full fp32; do predict 4 gpt_tiny 32 $precision; done

    # What follows measures no time.
    same_losses "$device batch=32" gpt_tiny
    same_losses "$cluster" resnet20
    same_losses "$cluster" gpt_tiny --wire bf16
    beside "memory of bert_base" 20 3-memory.txt "$tandem" train -q --json --model bert_base:seq=128 --batch \
        64 --device "$device" --uniform bf16 --steps 20
    ncu=$(command -v ncu)
    if [ -n "$ncu" ]; then
        beside "names of kernels in a step of bert_base" 28 3-ncu.txt env TANDEM_GRAPHS=0 "$ncu" \
            --clock-control none -k 'regex:xmma|nvjet|cutlass|gemm|conv|attention' -c 60 \
            --metrics gpu__time_duration.sum "$tandem"-bench step -q --device "$device" --uniform bf16 \
            --repetitions 1 --model bert_base:seq=128 --batch 64
    else
        printf '\n=== ncu: SKIP: not installed; it comes with CUDA Toolkit 13\n'
        lack ncu
    fi
    together 30

    profile "$cluster" 20 3-hybrid.txt --model resnet20 --cluster "$cluster"
    part "resnet20 on $cluster, predicted and run" 8 3-hybrid.txt "$tandem" compare -q --model resnet20 \
        --cluster "$cluster" --uniform bf16,fp32 --steps 20
    # In the profile of the cluster the card has the same batch.
    for precision in bf16 fp8 int8_full fp32; do predict 4 resnet20 256 $precision; done
    part "all-reduces on $cluster" 8 3-hybrid.txt "$tandem"-bench allreduce --cluster "$cluster" \
        --repetitions 5
    echo
    sed -n 's/^step  *predicted .*: error -*\([0-9.]*\)%$/\1/p' "$out"/3-{compare,hybrid}.txt |
        awk '{ n++; near += $1 <= 5 }
            END { printf "%d of %d steps were predicted within 5%%\n", near, n }'
}

date -u
uname -a
: >"$work/python"
if [ "$call" != 3 ]; then # meanwhile: PyTorch takes seconds to be loaded
    "$root/bench/cuda/steps.sh" python >"$work/python" &
    finder=$!
fi
timeout 20 nvidia-smi -i 0 2>/dev/null || echo "no nvidia-smi here, or no card"
card=$(timeout 20 nvidia-smi -i 0 --query-gpu=name --format=csv,noheader 2>/dev/null | tr 'A-Z ' 'a-z_' |
    tr -cd 'a-z0-9_.-')
ours ldd "$programs/bench_gpu" | awk '$1 ~ "^libcu" { print "  " $1, $3 }'
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
    [ -z "$finder" ] || wait "$finder"
    finder=''
    python=$(cat "$work/python")
    may_end=$SECONDS
    case $call in
    1) is_it_right ;;
    2) how_fast ;;
    3) does_it_predict ;;
    esac
fi

[ -z "$lack_text" ] || failed+=("the store as text")
[ ! -e "$out/profiles/measured/$card.sql" ] ||
    echo "profiles/measured/$card.sql: $(wc -c <"$out/profiles/measured/$card.sql") bytes"
echo "$SECONDS s in all"
[ ${#missing_parts[@]} = 0 ] || { echo "could not be done here:"; printf '  %s\n' "${missing_parts[@]}"; }
[ ${#failed[@]} = 0 ] || { echo "failed, or not done in time:"; printf '  %s\n' "${failed[@]}"; exit 1; }
[ ${#missing_parts[@]} = 0 ] || exit 4
