$TANDEM graph show gpt_tiny:depth=1
