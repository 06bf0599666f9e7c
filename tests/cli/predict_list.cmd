"$TANDEM" predict --list "$FIXTURES/timings.csv" -o out.csv && cat out.csv && head -n 3 "$FIXTURES/timings.csv" >rows.csv && "$TANDEM" predict --list "$FIXTURES/timings.csv" --calibrate rows.csv
