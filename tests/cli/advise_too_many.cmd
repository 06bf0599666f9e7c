$TANDEM advise --model mlp --cluster "$(printf 'cpu:avx2 + %.0s' {1..19})cpu:avx2" --add "$(printf 'cpu:sse41 + %.0s' {1..12})cpu:sse41"
