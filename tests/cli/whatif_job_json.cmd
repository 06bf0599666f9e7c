$TANDEM whatif $FIXTURES/job.csv --json
