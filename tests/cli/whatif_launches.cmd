"$TANDEM" whatif "$FIXTURES/launches.json"
