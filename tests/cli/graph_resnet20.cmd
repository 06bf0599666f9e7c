$TANDEM graph show resnet20
