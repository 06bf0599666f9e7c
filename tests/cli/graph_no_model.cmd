$TANDEM graph show
