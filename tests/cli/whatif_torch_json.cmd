cp $FIXTURES/torch*.json . && $TANDEM whatif torch0.json torch1.json --json
