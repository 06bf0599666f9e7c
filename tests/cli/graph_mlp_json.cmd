$TANDEM graph show mlp --batch 2 --json | grep -v '^   '
