gzip -n <$FIXTURES/job.csv >job.csv.gz && $TANDEM whatif job.csv.gz --trace - | sed -n 1,3p
