$TANDEM allocate --model mlp --device cpu:avx2 --pareto=1
