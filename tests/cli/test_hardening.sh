#!/bin/bash
# What is built carries what makes a defect of memory harder to use: guarded stacks, checked copies, tables of
# addresses that are read-only before anything runs, no memory that is both written and run, and programs that
# lie at another address each time. Speaks TAP. TANDEM_BUILD = the build folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
command -v readelf >/dev/null ||
    { skip "hardening" "readelf is not here (apt-get install binutils)"; echo "1..$n"; exit 0; }

# lacks FILE: what it lacks, a word each.
lacks() {
    readelf -W -l -d "$1" >sections
    readelf -W --dyn-syms "$1" >named
    grep -q 'GNU_RELRO' sections || echo relro
    grep -Eq '\(FLAGS\).*BIND_NOW|\(FLAGS_1\).*NOW' sections || echo now
    ! grep -q '(TEXTREL)' sections || echo position
    grep 'GNU_STACK' sections | grep -q ' RW ' || echo stack
    ! grep -E '^ *LOAD' sections | grep -q ' RWE ' || echo writable-code
    [ -n "$sanitizers" ] || grep -q '__stack_chk_fail' named || echo protector
    [ -n "$sanitizers" ] || grep -Eq '__[a-z]+_chk(@|$)' named || echo fortify
}
sanitizers=$(basename "$build" | sed 's/^build$//')
[ -z "$sanitizers" ] || echo "# built with $sanitizers: guarded stacks and checked copies are left to them"
wanted="tandem libtandem.so.0 libtandem_backend.so libtandem_kernels.so.0"
others="libtandem_cuda.so libtandem_cuda_kernels.so.0 spank_tandem.so"
others+=" spank_tandem_planner.so job_submit_tandem.so"
for name in $wanted $others; do
    if [ ! -e "$build/$name" ] && [[ " $others " = *" $name "* ]]; then
        case $name in
        *cuda*) skip "hardening of $name" "it is built where nvcc is, and without sanitizers" ;;
        *) skip "hardening of $name" \
            "without sanitizers, where Slurm's headers are (scripts/setup.sh --slurm)" ;;
        esac
        continue
    fi
    : >out && : >err && code=0
    lacks "$build/$name" >out
    [ -s sections ] && [ ! -s out ]
    report "$name is hardened" $?
done
readelf -W -h -d "$build/tandem" >out && grep -q 'Type: *DYN' out && grep -q 'FLAGS_1.*PIE' out
report "tandem lies at another address each time" $?

echo "1..$n"
[ $failed = 0 ]
