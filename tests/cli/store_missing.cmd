$TANDEM replay --model mlp --device cpu:avx2; code=$?; ls; exit $code
