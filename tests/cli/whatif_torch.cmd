$TANDEM whatif $FIXTURES/torch1.json $FIXTURES/torch0.json
