$TANDEM allocate --instance $FIXTURES/instance.json --policy best
