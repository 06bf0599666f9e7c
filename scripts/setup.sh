#!/bin/sh
# Installs what tandem needs on Debian 12, if it is not there: as root with apt-get, else through sudo, else
# it prints the line to run and exits 4. Does nothing, quickly, where everything is installed. With --slurm,
# Slurm too (20 MB and its services): to build its plug-ins, and to test them as root. With --checks, clang 14
# and cppcheck too: for lint and fuzzing. With --missing, it installs nothing: it says what Debian's packages
# lack here, and exits 0.
set -eu
packages="gcc g++ libc6-dev make perl pkgconf libdnnl-dev libgloo-dev libsqlite3-dev libjansson-dev"
packages="$packages libgsl-dev libglpk-dev zlib1g-dev"
packages="$packages libprotobuf-c-dev protobuf-c-compiler libcmocka-dev dataset-fashion-mnist"
only_says=
for option; do
    case $option in
    --slurm) packages="$packages slurmctld slurmd slurm-client libslurm-dev munge" ;;
    --checks) packages="$packages clang-14 clang-tidy-14 libclang-rt-14-dev libomp-14-dev cppcheck" ;;
    --missing) only_says=1 ;;
    *)
        echo "usage: scripts/setup.sh [--slurm] [--checks] [--missing]" >&2
        exit 2
        ;;
    esac
done

[ -z "$only_says" ] || command -v dpkg-query >/dev/null 2>&1 || exit 0
missing=""
for package in $packages; do
    case "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)" in
    *" installed") ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

line="apt-get install -y --no-install-recommends$missing"
echo "tandem needs:$missing" >&2
if [ -n "$only_says" ]; then
    echo "make setup installs it" >&2
    exit 0
fi
if [ "$(id -u)" = 0 ]; then
    as=""
elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    as="sudo"
else
    echo "Run as root:  apt-get update && $line" >&2
    exit 4
fi
$as apt-get update -q >&2
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive $as $line >&2
