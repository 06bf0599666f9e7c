"$TANDEM" whatif "$FIXTURES/launches.json" -q
