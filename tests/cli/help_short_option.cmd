$TANDEM -h | head -1
