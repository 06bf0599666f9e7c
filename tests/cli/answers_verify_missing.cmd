$TANDEM allocate --verify nowhere.json
