$TANDEM train --help
