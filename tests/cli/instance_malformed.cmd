sed s/harm/harms/ $FIXTURES/instance.json >instance.json; $TANDEM allocate --instance instance.json
