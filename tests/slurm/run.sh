#!/bin/bash
# The plug-ins in a Slurm of their own: munged, slurmctld and four slurmd on this machine, in a folder and on
# ports of their own; jobs of root and of another user, trained for real on two different devices of this CPU.
# Speaks TAP. Needs root and Slurm's packages (scripts/setup.sh --slurm). TANDEM_BUILD = the build folder;
# KEEP=1 leaves the folder with the logs.
# shellcheck disable=SC2016,SC2015 # scripts for other shells are in single quotes
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TANDEM_BUILD:-$here/../../build}" && pwd) || exit 4
export LC_ALL=C
unset "${!SLURM_@}" "${!SBATCH_@}" "${!TANDEM_@}" RANK WORLD_SIZE LOCAL_RANK OMP_NUM_THREADS
ulimit -c 0

n=0 failed=0
skip_all() {
    echo "SKIP: Slurm's plug-ins: $1"
    echo "ok 1 - Slurm's plug-ins # SKIP $1"
    echo "1..1"
    exit 0
}
for program in slurmctld slurmd srun sbatch scancel sinfo scontrol squeue munged setpriv; do
    command -v $program >/dev/null || skip_all "there is no $program (scripts/setup.sh --slurm)"
done
[ "$(id -u)" = 0 ] || skip_all "slurmd has to start jobs of several users, so this needs root"
[ -e "$build/spank_tandem.so" ] ||
    skip_all "the plug-ins are not in $build: built without Slurm's headers, or with sanitizers"
for user in munge nobody; do
    getent passwd $user >/dev/null || skip_all "there is no user $user"
done
present() { "$build/tandem" list devices --json | grep -B 2 '"present": true' |
    sed -n 's/^ *"name": "\(cpu:.*\)",$/\1/p'; }
weak=$(present | head -n 1) strong=$(present | tail -n 1)
[ "$weak" != "$strong" ] || skip_all "this CPU is not two different devices"
"$build/tandem" list datasets | grep -q '^fashion-mnist .* /' ||
    skip_all "the data set is not installed (scripts/setup.sh)"

# --- A cluster of four nodes: two strong ones, known by a feature; two weak ones, known by a feature and a
# card ---
work=$(mktemp -d /tmp/tandem-slurm-XXXXXX) || exit 5
daemons=() # process ids
export SLURM_CONF=$work/slurm.conf

# has PID NAME=VALUE: whether a process was started with this in its environment.
has() { { tr '\0' '\n' <"/proc/$1/environ" | grep -qx "$2"; } 2>/dev/null; }
# Processes that this Slurm has started: its configuration is in their environment.
started() {
    local environment pid
    for environment in /proc/[0-9]*/environ; do
        pid=${environment#/proc/} pid=${pid%/environ}
        [ "$pid" = $$ ] || [ "$pid" = "$BASHPID" ] || ! has "$pid" "SLURM_CONF=$SLURM_CONF" || echo "$pid"
    done
}
stop_cluster() {
    local pid k
    [ ! -e "$work/slurmctld.pid" ] ||
        timeout 5 scancel --state=RUNNING,PENDING,SUSPENDED -u root,nobody 2>/dev/null
    for pid in "$work"/slurmd.*.pid "$work/slurmctld.pid" "$work/munge/pid"; do
        [ ! -s "$pid" ] || daemons+=("$(cat "$pid")")
    done
    [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}" 2>/dev/null
    for ((k = 0; k < 50; k++)); do
        left=$(started; for pid in "${daemons[@]}"; do [ ! -e "/proc/$pid" ] || echo "$pid"; done)
        [ -n "$left" ] || break
        # shellcheck disable=SC2086
        [ $k -lt 20 ] || kill -KILL $left 2>/dev/null
        sleep 0.1
    done
    daemons=()
}
clean() {
    stop_cluster
    if [ -n "${KEEP:-}" ]; then echo "# kept: $work"; else rm -rf "$work"; fi
}
trap clean EXIT
trap 'exit 130' INT TERM

prepare() {
    local bin=$work/bin node
    chmod 755 "$work"
    mkdir -p "$bin" "$work"/{state,log,spool,store}
    install -d -o munge -g munge -m 755 "$work/munge"
    install -d -o nobody -m 755 "$work/jobs"
    install -d -m 755 "$work/root"
    cp "$build"/{tandem,tandem-rank,libtandem_backend.so} \
        "$build"/{spank_tandem.so,spank_tandem_planner.so,job_submit_tandem.so} "$bin" || exit 4
    head -c 1024 /dev/urandom >"$work/munge/key"
    chown munge "$work/munge/key" && chmod 400 "$work/munge/key"
    for node in n2 n3; do mknod "$work/card.$node" c 1 3 || skip_all "no device nodes can be made here"; done
    local host port=$((20000 + RANDOM % 10000)) plugins
    host=$(hostname -s)
    plugins=$(dirname "$(find /usr/lib -name auth_munge.so -print -quit)")
    cat >"$SLURM_CONF" <<END
ClusterName=tandem
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/log/slurmctld
SlurmdLogFile=$work/log/%n
SlurmctldDebug=verbose
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_min_interval=1000,bf_interval=1
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=10
KillWait=2
GresTypes=gpu
PlugStackConfig=$work/plugstack.conf
JobSubmitPlugins=tandem
PluginDir=$plugins:$bin
NodeName=n[0-1] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + 2))] CPUs=4 \
    Feature=strong,tandem_${strong/:/_}
NodeName=n[2-3] NodeHostname=$host NodeAddr=127.0.0.1 Port=[$((port + 3))-$((port + 4))] CPUs=4 \
    Feature=weak,${weak/:/_} Gres=gpu:old:1
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:4
END
    cat >"$work/gres.conf" <<END
AutoDetect=off
NodeName=n2 Name=gpu Type=old File=$work/card.n2
NodeName=n3 Name=gpu Type=old File=$work/card.n3
END
    echo "optional $bin/spank_tandem.so" >"$work/plugstack.conf"
    cat >"$work/tandem.conf" <<END
# what Slurm calls it and what tandem calls it
gres gpu:old $weak
net  10Gbit/s,20us   # for groups of ranks that have not been measured
db   $work/store/tandem.db
END
}
start_slurmd() { slurmd -N "$1" -f "$SLURM_CONF"; }
idle_nodes() { timeout 5 sinfo -h -N -o '%N %T' 2>/dev/null | grep -c ' idle$'; }
start_cluster() {
    local k
    setpriv --reuid=munge --regid=munge --clear-groups munged --socket="$work/munge/socket" \
        --key-file="$work/munge/key" \
        --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed" || return 1
    slurmctld -c -f "$SLURM_CONF" || return 1
    for k in 0 1 2 3; do start_slurmd "n$k" || return 1; done
    for ((k = 0; k < 100; k++)); do
        [ "$(idle_nodes)" != 4 ] || return 0
        sleep 0.1
    done
    return 1
}

# --- Running and reporting
# --------------------------------------------------------------------------------------------------- report
# NAME CODE: one line of TAP; on failure with what the last command printed.
report() {
    n=$((n + 1))
    if [ "$2" = 0 ]; then
        echo "ok $n - $1"
        return
    fi
    echo "not ok $n - $1"
    failed=$((failed + 1))
    { echo "exit code ${code:-}; stdout:"; head -n 30 out; echo "stderr:"; grep -v \
        'srun: launch\|defined options' err | head -n 20; } | sed 's/^/# /'
}
# run EXPECTED_CODE COMMAND…: output in out and err; as root, or after `as=nobody` as that user.
as=root
run() {
    local expected=$1
    shift
    if [ $as = root ]; then
        timeout 60 "$@" >out 2>err </dev/null
    else
        timeout 60 setpriv --reuid=$as --regid=nogroup --clear-groups "$@" >out 2>err </dev/null
    fi
    code=$?
    [ $code = "$expected" ]
}
said() { grep -q -- "$1" err; }
# Members of a JSON object that are on a line of their own, in order: field step_ns FILE
field() { sed -n "s/^ *\"$1\": \(.*[^,]\),\{0,1\}\$/\1/p" "$2"; }
no_left_over() { ! find "$work/jobs" "$work/root" -name '.tandem*' | grep .; }
plan_of() { find . -name 'tandem-plan-*.json' -printf '%f\n' | sort -V | tail -n 1; }

prepare
cd "$work/root" || exit 5
if ! start_cluster; then
    report "Slurm starts with the plug-ins" 1
    tail -n 5 "$work"/log/* | sed 's/^/# /'
    echo "1..$n"
    exit 1
fi
report "Slurm starts with the plug-ins" 0
tandem=$work/bin/tandem
model=mlp:width=16
asked=("--tandem-model=$model" --tandem-batch=4)
pair=(-N2 "--constraint=[strong*1&weak*1]")
train=("$tandem" train --data fashion-mnist --steps 20 --eval 200 --json)

run 0 srun --help && [ "$(grep -c '^ *--tandem-' out)" = 13 ]
report "srun lists the options" $?

export TANDEM_DB=$work/store/tandem.db
run 0 "$tandem" profile --model $model --batch 4 --device "$strong,$weak" --repetitions 3 -q &&
    run 0 "$tandem" profile --model $model --batch 4 --device "$strong,$strong" --repetitions 3 -q &&
    run 0 "$tandem" sensitivity --model $model --batch 4 --device "$strong" --data fashion-mnist --steps 3 -q
report "a store is measured" $?
unset TANDEM_DB

# --- A step that plans, and trains by its plan ---
run 0 srun -v "${pair[@]}" "${asked[@]}" "${train[@]}" && [ "$(field steps out)" = 20 ] &&
    [ "$(field device out | tr -d '"\n')" = "$strong$weak" ] && [ "$(grep -c '"loss": \[' out)" = 1 ] &&
    no_left_over
report "srun tandem train: one rank on each of two different nodes, without further flags" $?
sed -n 's/^srun: tandem: /# &/p' err

plan=$(plan_of)
[ "$(stat -c %U:%F "$plan")" = "root:regular file" ] &&
    run 0 "$tandem" replay --plan "$plan" --db "$work/store/tandem.db" --json &&
    grep -q "\"model\": \"$model\"" "$plan"
report "the plan lies beside the job" $?

shows='echo $SLURMD_NODENAME $SLURM_PROCID $RANK $LOCAL_RANK $WORLD_SIZE $TANDEM_DEVICE $OMP_NUM_THREADS'
run 0 srun -l -N2 --constraint=strong --ntasks-per-node=2 -m cyclic "${asked[@]}" sh -c \
    "$shows"' $TANDEM_PLAN $TANDEM_STORE' &&
    [ "$(sort -k4n out | cut -d' ' -f2-8)" = "n0 0 0 0 4 $strong 1
n0 2 1 1 4 $strong 1
n1 1 2 0 4 $strong 1
n1 3 3 1 4 $strong 1" ] && [ "$(cut -d' ' -f9 out | sort -u)" = "$PWD/$(plan_of)" ] &&
    cut -d' ' -f10 out | sort -u | grep -qx "$PWD/.tandem-run-[0-9]*.0"
report "ranks go class by class, node by node, whatever Slurm's distribution is" $?

run 0 srun -N1 --gres=gpu:old:1 "${asked[@]}" sh -c 'echo $TANDEM_DEVICE $TANDEM_DB' &&
    [ "$(cat out)" = "$weak $work/store/tandem.db" ]
report "a card is the device that tandem.conf says" $?

run 0 srun -N1 --gres=gpu:old:1 "${asked[@]}" "${train[@]}" : -N1 --constraint=strong "${train[@]}" &&
    [ "$(field device out | tr -d '"\n')" = "$weak$strong" ] && no_left_over
report "the components of a heterogeneous job are one run" $?

run 0 srun --export=NONE "${pair[@]}" "${asked[@]}" "${train[@]}"
report "--export=NONE keeps nothing from the ranks" $?

run 0 srun -N1 --constraint=strong env && ! grep -q '^TANDEM_\|^RANK=' out
report "a step that asks for nothing gets nothing" $?

# --- Another user's batch jobs ---
as=nobody
cd "$work/jobs" || exit 5
script() { cat >"$work/job.sh" && chmod 755 "$work/job.sh"; }
# submit OPTION…: queues the script, whose output goes to ID.out; its number in `job`.
submit() {
    run 0 sbatch --parsable -o %j.out "$@" "$work/job.sh"
    job=$(cat out)
}
# ended JOB: waits for it; its exit code in `code`. Quicker than sbatch --wait, which asks ever more seldom.
ended() {
    local k
    for ((k = 0; k < 600; k++)); do
        scontrol show job -o "$1" >out 2>err
        ! grep -qE 'JobState=(PENDING|RUNNING|COMPLETING|CONFIGURING)' out || { sleep 0.05; continue; }
        break
    done
    cp "$1.out" err
    code=$(sed -n 's/.* ExitCode=\([0-9]*\):.*/\1/p' out)
    [ "$code" = 0 ]
}
batch() { submit "$@" && ended "$job"; }

script <<END
#!/bin/bash
srun ${train[*]} >first.json && cp tandem-plan-\$SLURM_JOB_ID.json plan.json &&
    srun -v ${train[*]} >second.json || exit
srun -N1 -n1 --constraint=strong "${train[@]:0:1}" train --steps 3 --json >alone.json
END
batch "${pair[@]}" "${asked[@]}" && cmp plan.json "tandem-plan-$job.json" && said 'of an earlier step' &&
    [ "$(stat -c %U "tandem-plan-$job.json")" = nobody ] && [ "$(grep -c '"rank"' second.json)" = 2 ] &&
        no_left_over
report "a batch job of another user: its steps share one plan" $?
[ -s "tandem-plan-$job.2.json" ] && [ "$(grep -c '"rank"' alone.json)" = 1 ]
report "a step on other nodes has a plan of its own" $?

# --- Jobs that are refused before they queue ---
refused() { run 1 sbatch -N1 "$@" --wrap true && [ -z "$(squeue -h)" ]; }
refused --tandem-model=mlpp && said "Did you mean 'mlp'"
report "an unknown model is refused, with the nearest name" $?
refused "--tandem-model=$model" --gres=gpu:odl:1 && said "Did you mean 'gpu:old'"
report "an unknown card is refused, with the nearest name" $?
most="does not fit $weak: at batch 256 a rank takes .* B) or more under any plan"
refused --tandem-model=vit_tiny --tandem-batch=256 --tandem-memory=300MiB --gres=gpu:old:1 &&
    said "$most, the limit is 300 MiB (314572800 B)" &&
    batch=$(sed -n 's/.*--tandem-batch=\([0-9]*\) fits.*/\1/p' err) && [ "$batch" -gt 1 ] &&
    run 0 sbatch --hold -N1 --tandem-model=vit_tiny --tandem-batch="$batch" --tandem-memory=300MiB \
        --gres=gpu:old:1 --wrap true &&
    scancel -u nobody
report "a model that fits no memory is refused: device, bytes, limit, a batch that fits" $?
refused --tandem-model=vit_tiny --tandem-batch=100000 --gres=gpu:t4:1 &&
    said 'does not fit t4: at batch 100000 .* the limit is 14.9 GiB'
report "a card's memory is known" $?
refused --tandem-model=vit_tiny --tandem-batch=256 --mem=100M --constraint="weak,${weak/:/_}" &&
    said "the limit is 100 MiB"
report "on a CPU, --mem is a limit, too" $?
mkfifo mlp # who opens it waits for ever
refused "--tandem-model=$PWD/mlp" && said "there is no model '$PWD/mlp'" && refused "--tandem-model=./mlp" &&
    rm mlp
report "a model's name is no path to slurmctld" $?
run 0 sbatch --hold -N1 --tandem-model=gpt2_small:layers=73 --tandem-memory=900TiB --gres=gpu:old:1 --wrap \
    true && scancel -u nobody &&
    grep -q "job_submit/tandem: a job of user $(id -u \
        nobody) is let through unchecked: to look at it takes more work" "$work/log/slurmctld"
report "what takes more work to look at than a job may is let through unchecked, and logged" $?
sed -n 's/.*job_submit\/tandem: LIMIT_EXCEEDED/# LIMIT_EXCEEDED/p' "$work/log/slurmctld"
run 255 sbatch -N1 "--tandem-model=$model" --tandem-slowdown=3 --wrap true && said "the unit is missing" &&
    run 255 sbatch -N1 "--tandem-model=$model" --tandem-policy=greddy --wrap true &&
        said "Did you mean 'greedy'" &&
    run 255 sbatch -N1 "--tandem-model=$model" --tandem-base-precision=fp23 --wrap true &&
        said "Did you mean 'fp32'" &&
    run 255 sbatch -N1 "--tandem-model=$model" --tandem-max-sensitivity=1 --wrap true &&
        said "the unit is missing" &&
    run 255 sbatch -N1 "--tandem-model=$model" --tandem-sensitivity=sampld --wrap true &&
        said "Did you mean 'sampled'" &&
    run 255 sbatch -N1 "--tandem-model=$model" --tandem-minimize=time --wrap true && said "training-time"
report "options are checked where they are typed" $?
# shown COMMAND: what docs/slurm.md has below it
shown() { awk -v line="\$ $1" '$0 == "```" || /^\$ / { on = 0 } on { print } $0 == line { on = 1 }' \
    "$here/../../docs/slurm.md"; }
grep '^\$ s\(batch\|run\) ' "$here/../../docs/slurm.md" | cut -c 3- >commands
echo '#!/bin/sh' >job.sh
while read -r -a command; do
    run 1 "${command[@]}"
    shown "${command[*]}" | diff - err || echo "${command[*]}"
done <commands >differing
cp differing out
[ "$(wc -l <commands)" = 3 ] && [ ! -s differing ]
report "what docs/slurm.md shows of jobs that are refused is what is said" $?
! grep -E 'error|fatal' "$work/log/slurmctld" | grep -E 'job_submit/tandem|spank_tandem' >err &&
    kill -0 "$(cat "$work/slurmctld.pid")"
report "slurmctld has nothing to complain of" $?

# --- Steps that fail, and nothing else with them ---
chmod 700 "$work/store"
run 5 srun "${pair[@]}" "${asked[@]}" "${train[@]}" && said "tandem: .*$work/store/tandem.db"
report "an unreadable store: the step fails and says why" $?
chmod 755 "$work/store"

run 4 srun "${pair[@]}" "--tandem-model=$model" --tandem-batch=8 "${train[@]}" &&
    said "tandem profile --model $model --batch 8"
report "costs that were not measured: the step fails and says how to measure them" $?

run 4 srun "${pair[@]}" "${asked[@]}" --tandem-base-precision=tf32 "${train[@]}" && said "has no tf32"
report "a base that a device lacks: the step fails and says what it has" $?

echo '{"schema": "tandem.plan/1", "model":' >broken.json && chmod 644 broken.json
run 3 srun "${pair[@]}" --tandem-plan=broken.json "${train[@]}" && said 'tandem: .*broken.json'
report "a broken plan that was given: the step fails and says why" $?

cp plan.json given.json
run 0 srun "${pair[@]}" --tandem-plan=given.json "${train[@]}" &&
    [ "$(field device out | tr -d '"\n')" = "$strong$weak" ] &&
    run 3 srun -N2 --constraint=strong --tandem-plan=given.json "${train[@]}" &&
        said 'the nodes of this step are 2\*'
report "a plan that was given is used on the nodes it is for, and on no others" $?

script <<END
#!/bin/bash
plan=tandem-plan-\$SLURM_JOB_ID
srun true && sed -i 's/fp32/fp33/' \$plan.json && srun true 2>broken.err && exit 1
echo mine >victim && rm \$plan.json && ln -s victim \$plan.json && srun true 2>link.err && exit 2
[ "\$(cat victim)" = mine ]
END
batch "${pair[@]}" "${asked[@]}" && grep -q 'tandem-plan-.*fp33' broken.err &&
    grep -q 'tandem: .tandem-plan-' link.err
report "a plan broken by hand, or a link in its place, is neither used nor overwritten" $?

run 3 srun --export=NONE "${pair[@]}" --tandem-plan=broken.json "${train[@]}" &&
    said 'tandem: .*broken.json' && no_left_over
report "with --export=NONE the tasks know of srun's failure, too" $?
cp "$work/tandem.conf" "$work/tandem.conf.whole"
echo nonsense >>"$work/tandem.conf"
run 3 srun --export=NONE "${pair[@]}" "${asked[@]}" "${train[@]}" && said "there is no 'nonsense'" &&
    no_left_over
report "and of one before srun has asked for the nodes" $?
mv "$work/tandem.conf.whole" "$work/tandem.conf"

# --- What others have put where srun's folder would be
# ------------------------------------------------------------------------- A job's steps begin in a directory
# that everybody may write. For each step there is what somebody has put there: a folder of another user's; a
# link to a right one; a link in the place of the file; a name that srun does not write; a folder that all may
# write; a file of another user's; a pipe; and last what srun itself would have left, which shows that the
# rest was looked at.
open=$work/open
mkdir -m 1777 "$open"
# plant STEP [LINE]: a folder as srun leaves it for that step of the job, with one line more
plant() {
    local folder=$open/.tandem-run-$job.$1
    mkdir -m 700 "$folder"
    printf '%s\n' TANDEM_PLAN=/planted TANDEM_STORE=/planted TANDEM_DB=/planted \
        "TANDEM_RANKS=0 1 $strong n0;" WORLD_SIZE=1 ${2:+"$2"} \
        >"$folder/environment"
    chmod 600 "$folder/environment"
    chown -R nobody "$folder"
}
script <<END
#!/bin/bash
for k in 0 1 2 3 4 5 6 7; do
    timeout -s KILL 20 srun --export=NONE --chdir=$open /usr/bin/env >planted.\$k.out 2>planted.\$k.err
    echo \$k \$?
done >planted.codes
END
submit --hold -N1 -w n0 "${asked[@]}"
for k in 0 3; do plant $k "LD_PRELOAD=$open/planted.so"; done
for k in 1 2 4 5 6 7; do plant $k; done
at=$open/.tandem-run-$job
chown -R root "$at.0" && chmod 755 "$at.0" && chmod 644 "$at.0/environment" # a stranger wants it to be read
mv "$at.1" "$open/right" && ln -s right "$at.1"
mv "$at.2/environment" "$open/file" && ln -s ../file "$at.2/environment"
chmod 777 "$at.4"
chown root "$at.5/environment" && chmod 644 "$at.5/environment"
rm "$at.6/environment" && mkfifo "$at.6/environment" && chown nobody "$at.6/environment"
list() { find "$open" -printf '%p %u %m %s %T@ %l\n' | sort; }
list >"$work/planted.before"
scontrol release "$job" && ended "$job"
cat planted.?.out planted.codes >out
cat planted.?.err >err
refused_because() { grep -qF -e "tandem: '$2' in the working directory is $3" -e "tandem: '$2'$3" \
    "planted.$1.err"; }
name=.tandem-run-$job
[ "$(head -n 7 planted.codes | cut -d' ' -f2 | sort -u)" = 3 ] && [ "$(cat planted.[0-6].out)" = "" ] &&
    refused_because 0 "$name.0" "user 0's, not user $(id -u nobody)'s" &&
        refused_because 1 "$name.1" "a link" &&
    refused_because 2 "$name.2/environment" "a link" &&
        refused_because 3 "$name.3/environment" ", line 6: 'LD_PRELOAD' is no name" &&
    refused_because 4 "$name.4" "of mode 0777" && refused_because 5 "$name.5/environment" "user 0's" &&
    refused_because 6 "$name.6/environment" "no regular file"
report "what others have put into the working directory reaches no task, and why is said" $?
grep -qx '7 0' planted.codes && grep -qx 'TANDEM_PLAN=/planted' planted.7.out &&
    grep -qx RANK=0 planted.7.out &&
    ! grep -q LD_PRELOAD planted.7.out
report "what srun would have left does" $?
list | diff "$work/planted.before" - >out && no_left_over
report "and nothing that was put there is changed" $?

script <<END
#!/bin/bash
srun true
END
submit --hold -N1 -w n0 "${asked[@]}"
mkdir ".tandem-run-$job.0" && echo mine >".tandem-run-$job.0/environment"
chown -R root ".tandem-run-$job.0"
scontrol release "$job"
ended "$job"
[ "$code" = 3 ] && said "tandem: '.tandem-run-$job.0' in the working directory is user 0's" &&
    [ "$(cat ".tandem-run-$job.0/environment")" = mine ]
report "nor does srun use, or remove, a folder of another user's" $?
rm -r ".tandem-run-$job.0"

sinfo -h -N -o '%N %T %E' >out
! grep -qE 'drain|down|fail' out
report "no node was drained" $?

# --- What slurmd and slurmstepd load ---
as=root
cd "$work/root" || exit 5
planner='spank_tandem_planner|libsqlite3|libjansson|libglpk|libgsl|libprotobuf'
run 0 srun -N1 -w n0 "${asked[@]}" sh -c 'cat /proc/$PPID/maps' && grep -q 'bin/spank_tandem.so' out &&
    ! grep -E "$planner" out &&
    ! grep -E "$planner" "/proc/$(cat "$work/slurmd.n0.pid")/maps"
report "neither slurmd nor slurmstepd opens the planner, or anything that it links" $?
mv "$work/bin/spank_tandem_planner.so" "$work/"
run 255 srun -N1 -w n0 "${asked[@]}" true && said "bin/spank_tandem_planner.so: .*make install-slurm"
report "without the planner srun says what is missing" $?
mv "$work/spank_tandem_planner.so" "$work/bin/"
as=nobody
cd "$work/jobs" || exit 5

# --- At the same time ---
script <<END
#!/bin/bash
srun -v ${train[*]}
END
submit "${pair[@]}" "${asked[@]}" && one=$job && submit "${pair[@]}" "${asked[@]}" && two=$job
TANDEM_DB=$work/store/tandem.db "$tandem" profile --model mlp:width=24 --batch 4 --device "$weak" \
    --repetitions 3 -q >/dev/null
written=$?
ended "$one" && ended "$two" && [ $written = 0 ] && grep -q '"steps": 20' "$one.out" &&
    grep -q '"steps": 20' "$two.out"
report "two jobs read one store while a third process writes it" $?

as=root
cd "$work/root" || exit 5
"$build/tests/slurm/test_many_rows" "$work/store/tandem.db" "$strong" "$weak" >out 2>err &&
    run 0 srun -v "${pair[@]}" "${asked[@]}" true && said 'ready in'
report "a store of more than 100,000 rows" $?
sed -n 's/^srun: tandem: ready/# from more than 100,000 rows: &/p' err

# --- A node that dies ---
# rank_pid R: the process of a rank, that of slurmstepd not being one.
rank_pid() {
    local pid
    for pid in $(started); do ! has "$pid" "RANK=$1" || echo "$pid"; done
}
: >err # the last step's speaks of steps, too
# --wait: srun gives the tasks that it hears nothing of so many seconds; a dead node's are never heard of.
srun --wait=1 "${pair[@]}" "${asked[@]}" "$tandem" train --steps 100000000 >out 2>err </dev/null &
srun=$!
for ((k = 0; k < 100; k++)); do
    grep -q 'step [0-9]' err && break
    sleep 0.1
done
survivor=$(rank_pid 0) task=$(rank_pid 1)
node=$(tr '\0' '\n' <"/proc/$task/environ" | sed -n 's/^SLURMD_NODENAME=//p')
stepd=$(sed -n 's/^PPid:\t//p' "/proc/$task/status")
since() { echo $((($(date +%s%N) - begin) / 1000000)); }
begin=$(date +%s%N)
kill -KILL "$(cat "$work/slurmd.$node.pid")" "$stepd" "$task"
rm -f "$work/slurmd.$node.pid"
while grep -q 'State:.[^Z]' "/proc/$survivor/status" &&
    [ "$(since)" -lt 10000 ]; do sleep 0.02; done 2>/dev/null
survived=$(since)
wait $srun
code=$?
echo "# the survivor ended $survived ms after its peer, the step after $(since) ms"
[ "$survived" -lt 5000 ] && [ $code = 6 ] && said 'task 0: Exited with exit code 6' && said 'rank 1 died'
report "a node dies in mid-run: the others stop within seconds, exit code 6" $?
for ((k = 0; k < 50; k++)); do
    squeue -h -t RUNNING,PENDING >out
    [ -s out ] || break
    sleep 0.1
done
[ ! -s out ] && no_left_over
report "its job ends" $?
start_slurmd "$node"
for ((k = 0; k < 100; k++)); do
    [ "$(idle_nodes)" != 4 ] || break
    sleep 0.1
done
sinfo -N -o '%N %T %E' >out
[ "$(idle_nodes)" = 4 ]
report "the node comes back" $?

stop_cluster
echo "$left" >out
[ -z "$left" ]
report "nothing is left running" $?
echo "1..$n"
[ $failed = 0 ]
