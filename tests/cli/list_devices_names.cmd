$TANDEM list devices --json | grep '"name"'
