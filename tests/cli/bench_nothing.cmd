$TANDEM-bench
