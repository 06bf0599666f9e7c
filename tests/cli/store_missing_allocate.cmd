$TANDEM allocate --model mlp --device cpu:avx2 -o plan.json; code=$?; ls; exit $code
