cp $FIXTURES/torch0.json . && $TANDEM whatif torch0.json --trace out.json
