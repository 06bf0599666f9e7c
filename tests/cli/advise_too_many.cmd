$TANDEM advise --model mlp --cluster "cpu:avx2 + cpu:avx2 + cpu:avx2 + cpu:avx2 + cpu:avx2" --add "cpu:sse41 + cpu:sse41 + cpu:sse41 + cpu:sse41"
