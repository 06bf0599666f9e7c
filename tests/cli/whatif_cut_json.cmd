head -c 700 $FIXTURES/torch0.json >cut.json && $TANDEM whatif cut.json
