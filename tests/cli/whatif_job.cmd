$TANDEM whatif $FIXTURES/job.csv
