#!/bin/bash
# A Debian 13 in a folder, with its PyTorch and what torch.compile needs, for bench/torch.sh steps: the peer
# of tandem on a machine whose own PyTorch is old. Some 2.5 GB; it takes minutes and the network.
# usage: bench/newest_torch.sh FOLDER
# then:  PEER=FOLDER bench/torch.sh steps
# A folder that is made already is left as it is; one whose packages are not all there gets the rest. The
# mirror is the one of this machine's apt, or http://deb.debian.org/debian. Exit code 4: debootstrap or root
# is missing; 2: FOLDER holds something else. Needs root, debootstrap, the network.
set -eu
packages=(python3-torch python3-torchvision libopenblas0 # and of torch.compile:
    g++ python3-dev python3-setuptools libtorch-dev libsleef-dev)
release=trixie
say() { echo "bench/newest_torch.sh: $*" >&2; }
[ $# = 1 ] || { say "got $# arguments; allowed is one: bench/newest_torch.sh FOLDER" && exit 2; }
folder=$(realpath -m "$1")
if [ "$(id -u)" != 0 ]; then
    say "needs root, got the user $(id -un); run: sudo bench/newest_torch.sh $1" && exit 4
fi
inside() { # COMMAND…
    LC_ALL=C DEBIAN_FRONTEND=noninteractive chroot "$folder" "$@"
}
has_all() {
    [ -x "$folder/usr/bin/python3" ] || return 1
    # shellcheck disable=SC2016 # a field of dpkg's
    [ "$(inside dpkg-query -W -f '${db:Status-Status}\n' "${packages[@]}" 2>/dev/null |
        grep -c '^installed$')" = ${#packages[@]} ]
}
report() {
    echo "$1: PyTorch $(inside python3 -c 'import torch, torchvision
print(torch.__version__)')"
}
if [ ! -d "$folder/debootstrap" ] && has_all; then report "$folder" && exit; fi

if [ -d "$folder/debootstrap" ]; then
    say "$folder is half made: debootstrap was stopped in it; run: rm -r $folder, then this again" && exit 2
fi
if [ ! -e "$folder/etc/debian_version" ]; then
    if [ -d "$folder" ] && [ -n "$(ls -A "$folder")" ]; then
        say "$folder holds other files; allowed are a new folder, an empty one, or one made by this" && exit 2
    fi
    if ! command -v debootstrap >/dev/null; then
        say "debootstrap is missing; run: apt-get install debootstrap" && exit 4
    fi
    mirror=$(grep -rhoE '^(URIs:|deb( \[[^]]*\])?) *https?://[^ ]+/debian/?( |$)' /etc/apt/sources.list \
        /etc/apt/sources.list.d 2>/dev/null | grep -oE 'https?://[^ ]+' | head -n 1) || true
    debootstrap --variant=minbase "$release" "$folder" "${mirror:-http://deb.debian.org/debian}"
fi
if ! grep -q '^13' "$folder/etc/debian_version"; then
    say "$folder is Debian $(cat "$folder/etc/debian_version"); allowed is 13: name another folder" && exit 2
fi
mounted=()
trap 'for one in "${mounted[@]}"; do umount "$one"; done' EXIT
for one in proc dev; do
    if ! mountpoint -q "$folder/$one"; then
        mount --bind "/$one" "$folder/$one"
        mounted+=("$folder/$one")
    fi
done
inside apt-get update -q
inside apt-get install -qy --no-install-recommends "${packages[@]}"
report "$folder"
