$TANDEM graph work gpt_tiny --uniform fp8 --amax delayed
