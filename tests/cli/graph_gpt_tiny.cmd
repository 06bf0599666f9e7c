$TANDEM graph show gpt_tiny
