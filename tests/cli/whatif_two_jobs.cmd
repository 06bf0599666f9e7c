cp $FIXTURES/job.csv . && $TANDEM whatif job.csv job.csv
