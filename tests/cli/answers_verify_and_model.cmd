$TANDEM allocate --verify plan.json --model mlp
