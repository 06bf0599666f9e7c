$TANDEM help list | head -n 1; $TANDEM help | head -n 1; $TANDEM list -h | head -n 1; $TANDEM help lits
