sed "s/backward-compute/backward-compote/" $FIXTURES/job.csv >job.csv && $TANDEM whatif job.csv
