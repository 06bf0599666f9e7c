$TANDEM allocate --model mlp --device cpu:avx2 --pareto --max-step 1ms
