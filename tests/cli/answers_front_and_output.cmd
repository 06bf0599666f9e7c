$TANDEM allocate --model mlp --device cpu:avx2 --pareto -o plan.json
