$TANDEM-bench replays
