cp $FIXTURES/launches.json . && $TANDEM whatif launches.json --json
