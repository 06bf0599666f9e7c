grep -v "^1,1,0,x,4,forward-recv,0,-1,1" $FIXTURES/job.csv >job.csv && $TANDEM whatif job.csv
