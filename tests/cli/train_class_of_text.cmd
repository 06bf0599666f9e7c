echo 'abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc' >text; $TANDEM train -q --model bert_base:seq=4,head=class --device cpu:sse41 --data text --steps 3
