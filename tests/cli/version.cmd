$TANDEM --version
