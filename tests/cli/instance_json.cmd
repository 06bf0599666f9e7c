cp $FIXTURES/instance.json . && $TANDEM allocate --instance instance.json --json | grep -v seconds
