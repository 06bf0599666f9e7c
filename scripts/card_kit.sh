#!/bin/bash
# Packs what scripts/on_card.sh runs, with every library that it needs but the C library and NVIDIA's, for a
# machine that has a card and nothing else of tandem's: build/card-kit.tar.gz. make card-kit builds the
# programs first. usage: scripts/card_kit.sh BUILD_FOLDER [FOLDER OF THE KIT]     the build folder;
# COMPRESSION: of gzip, 1 to 9 [6]
set -eu
build=$1 kit=${2:-$1}/card-kit
rm -rf "$kit" "$kit.tar.gz"
mkdir -p "$kit"/{build/card,lib,gcc,scripts,bench/cuda,bench/torch}
cp "$build"/tandem{,-bench} "$build"/libtandem_{backend,cuda}.so \
    "$build"/libtandem{,_kernels,_cuda_kernels}.so.0 "$kit/build/"
cp "$build/card/gpu_programs" "$kit/build/card/"
strip "$kit"/build/tandem{,-bench} "$kit"/build/*.so* "$kit/build/card/gpu_programs"
sed -n 's/^PROGRAM(\(.*\))$/\1/p' tests/cuda/gpu_programs.def |
    while read -r name; do ln "$kit/build/card/gpu_programs" "$kit/build/card/$name"; done
cp scripts/{on_card,test_cuda,run_tests}.sh scripts/{until_silent.pl,skips.txt} "$kit/scripts/"
cp bench/cuda/*.sh "$kit/bench/cuda/"
cp bench/torch/step.py "$kit/bench/torch/"
tar --exclude=__pycache__ -cf - python tests/python tests/data/torch | tar -C "$kit" -xf -

ldd "$kit"/build/tandem{,-bench} "$kit"/build/*.so* "$kit"/build/card/* |
    awk '$3 ~ "^/" { print $1, $3 }' | sort -u |
    while read -r name file; do
        case $name in
        libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | librt.so.* | ld-linux*) ;; # of the machine
        libcuda.so.* | libcudart.so.* | libcublas*.so.* | libcudnn*.so.*) ;;
        libstdc++.so.* | libgcc_s.so.* | libgomp.so.*) cp -L "$file" "$kit/gcc/$name" ;;
        *) cp -L "$file" "$kit/lib/$name" ;;
        esac
    done
glibc=$(objdump -T "$kit"/build/tandem{,-bench} "$kit"/build/*.so* "$kit"/build/card/* "$kit"/lib/* \
    "$kit"/gcc/* |
    grep -o 'GLIBC_[0-9.]*' | sed 's/GLIBC_//' | sort -uV | tail -n 1)
echo "glibc $glibc" >"$kit/needs"

tar -C "$(dirname "$kit")" -I "gzip -${COMPRESSION:-6}" -cf "$kit.tar.gz" card-kit
bytes=$(stat -c %s "$kit.tar.gz")
echo "$kit.tar.gz: $((bytes >> 20)) MiB; needs glibc $glibc and, of NVIDIA's, $(objdump -p \
    "$kit/build/libtandem_cuda.so" |
    awk '/NEEDED/ && $2 ~ "^libcu" { printf "%s%s", n++ ? ", " : "", $2 }')"
[ "$bytes" -le $((64 << 20)) ] || { echo "that is more than 64 MiB" >&2 && exit 1; }
