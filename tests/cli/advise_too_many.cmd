$TANDEM advise --model mlp --cluster "$(yes cpu:avx2 | head -30 | paste -sd+)" --add "cpu:sse41 + cpu:sse41 + cpu:sse41"
