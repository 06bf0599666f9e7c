$TANDEM replay -q --modle mlp
