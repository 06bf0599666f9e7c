$TANDEM allocate --instance $FIXTURES/instance.json -o -
