$TANDEM allocate --instance $FIXTURES/instance.json --model mlp
