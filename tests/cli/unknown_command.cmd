$TANDEM alocate
