$TANDEM whatif no-such.csv
