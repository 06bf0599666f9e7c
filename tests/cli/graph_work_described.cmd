$TANDEM graph work gpt_tiny --device h200 | tail -n 3
