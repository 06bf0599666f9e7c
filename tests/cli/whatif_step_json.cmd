$TANDEM whatif $FIXTURES/step.json --json
