$TANDEM graph show resnet2
