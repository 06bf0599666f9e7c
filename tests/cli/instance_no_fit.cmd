sed s/780000/300000/ $FIXTURES/instance.json >narrow.json; $TANDEM allocate --instance narrow.json -o choices.json; code=$?; [ -e choices.json ] || exit $code
