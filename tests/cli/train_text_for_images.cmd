echo 'a text that is long enough for some samples of it' >text; $TANDEM train -q --model resnet18 --device cpu:sse41 --data text --steps 3
