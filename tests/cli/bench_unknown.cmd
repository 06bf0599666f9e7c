$TANDEM bench replays
