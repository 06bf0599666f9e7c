$TANDEM graph show gpt_tiny --batch 2 --json | grep -v '^   '
