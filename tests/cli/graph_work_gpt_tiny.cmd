$TANDEM graph work gpt_tiny
