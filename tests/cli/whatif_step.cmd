$TANDEM whatif $FIXTURES/step.json
