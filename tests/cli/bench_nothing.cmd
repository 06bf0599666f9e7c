$TANDEM bench
