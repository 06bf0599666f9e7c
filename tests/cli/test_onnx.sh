#!/bin/bash
# Models in ONNX files (tests/data/onnx, made by tests/onnx/make_small.py): what is right is imported, planned
# and trained; what is wrong is refused with exit code 3 and the reason. Speaks TAP. TANDEM_BUILD = the build
# folder.
set -u
# shellcheck source=tests/cli/tap.sh
. "$(dirname "$0")/tap.sh"
cp -r "$here/../data/onnx" nets
kinds() { run 0 graph show "$@" && awk 'NR > 1 && !/ at batch / { printf "%s ", $2 }' out >kinds; }

kinds nets/odd.onnx && [ "$(cat kinds)" = "images relu map reshape linear bias labels cross_entropy " ]
report "nodes in any order, unused inputs, initializers as inputs, scalars as 1-tensors" $?
kinds nets/conv.onnx && [ "$(cat kinds)" = "images conv2d bias batchnorm_relu avgpool reshape linear bias \
layernorm map labels cross_entropy " ] && ! grep -q transpose out && grep -q "^bn .* batchnorm_relu" out
report "a layernorm and a gelu written in steps, a batchnorm, a final softmax" $?
run 0 graph show nets/tokens.onnx --set seq=5,batch=3 && grep -q "^table .*3×5×6" out &&
    cp out set && run 0 graph show nets/tokens.onnx:seq=5 --batch 3 && grep -v "at batch" out >one &&
    grep -v "at batch" set | cmp -s - one
report "symbolic sizes: --set and the model's options say the same" $?
run 3 graph show nets/tokens.onnx &&
    grep -q "size 'seq', dimension 1 of input 'ids', is left open; close it with --set seq=N" err
report "a symbolic size that is left open is named, with what closes it" $?
kinds nets/places.onnx && [ "$(cat kinds)" = "images reshape linear call_trained call softmax reshape linear \
bias labels cross_entropy " ] && grep -q "^attn.table .* call_trained  *64×4  *7 " out &&
    run 0 replay -q --model nets/places.onnx --cluster "2*t4@8 net=10Gbit/s,5us" --predict &&
    run 4 train -q --model nets/places.onnx --device weakest --steps 1 --eval 0 &&
    grep -q "'attn.table' (call_trained.*planned, not trained" err
report "a table of relative positions and a written mask are planned; a training names the operator" $?
kinds nets/rotated.onnx && [ "$(cat kinds)" = "images reshape linear reshape mul_constant mul_constant \
mul_constant reshape repeat reshape linear bias labels cross_entropy " ] && grep -q " 346 parameters" out &&
    run 0 train -q --model nets/rotated.onnx --device weakest --steps 2 --eval 0 &&
    run 0 replay -q --model nets/rotated.onnx --cluster "2*t4@8 net=10Gbit/s,5us" --predict
report "rotated positions and heads that share a key: tables that are no weights" $?
kinds nets/turned.onnx &&
    [ "$(cat kinds)" = "images reshape mul_constant call linear bias labels cross_entropy " ]
report "a table of factors that is transposed is another one: planned" $?
kinds nets/empty.onnx && cp kinds one && kinds nets/qdq.onnx && cmp -s kinds one &&
    [ "$(cat kinds)" = "images reshape linear bias labels cross_entropy " ]
report "constants of no elements; a graph that simulates 8-bit numbers is that of its floats" $?
kinds nets/bare.onnx && [ "$(cat kinds)" = "images reshape linear bias labels cross_entropy " ] &&
    run 0 train -q --model nets/bare.onnx --device weakest --steps 2 --eval 0
report "a file that lists its weights as inputs, without numbers" $?
kinds nets/early.onnx && [ "$(cat kinds)" = "images reshape linear call_trained softmax reshape linear bias \
labels cross_entropy " ] && run 4 train -q --model nets/early.onnx --device weakest --steps 1 --eval 0 &&
    grep -q "'attn.table' (call_trained.*planned, not trained" err
report "a file without weights that lists integers, too: it is planned" $?
kinds nets/far.onnx && [ "$(cat kinds)" = "images reshape slice slice reshape linear labels \
cross_entropy " ]
report "bounds and rows by the largest numbers of 64 bits, and by negative ones" $?
mkdir nets/part && cp nets/weights.bin nets/part && run 0 graph show nets/beneath.onnx &&
    rm -r nets/part && ln -s "$PWD/nets" nets/part && run 3 graph show nets/beneath.onnx &&
    grep -q "'part/weights.bin'; allowed are files in the model's folder" err
report "data in a folder below the model's; a link there is refused" $?
run 0 graph show nets/odd.onnx --batch 8 --json &&
    sed -n 's/.*"signature": "\(linear[^"]*\)".*/\1/p' out | grep -qx "linear m=8 k=8 n=10"
report "an imported operator has the signature of the zoo's" $?
run 0 train -q --model nets/external.onnx --device weakest --steps 2 --eval 0 &&
    run 0 train -q --model nets/conv.onnx --device weakest --steps 2 --eval 0
report "imported models are trained, with weights of the file and of a file beside it" $?
run 0 train -q --model nets/odd.onnx --device weakest --steps 1 --eval 0 --seed 1 &&
    sed -n 's/.*loss \([0-9.]*\) .*/\1/p' out >a
run 0 train -q --model nets/odd.onnx --device weakest --steps 1 --eval 0 --seed 1 &&
    sed -n 's/.*loss \([0-9.]*\) .*/\1/p' out >b
[ -s a ] && cmp -s a b
report "initial weights are the file's" $?
run 0 profile -q --model nets/conv.onnx --device weakest --batch 4 --db p.db &&
    run 0 replay -q --model nets/conv.onnx --device weakest --batch 4 --db p.db &&
    grep -q "nets/conv.onnx" out &&
    run 0 replay -q --model nets/conv.onnx --cluster "2*t4@8 net=10Gbit/s,5us" --predict
report "an imported model is profiled, replayed, and predicted for a described GPU" $?
run 0 sensitivity -q --model nets/conv.onnx --data data --device weakest --batch 4 --steps 2 --db p.db &&
    run 0 allocate -q --model nets/conv.onnx --device weakest --batch 4 --db p.db -o plan.json --predict &&
    run 0 train -q --plan plan.json --steps 1 --eval 0
report "an imported model is allocated, and trained by its plan" $?
run 1 graph show nets/unknown.onnx --unsupported &&
    grep -q "Einsum, domain ai.onnx, opset 13): there is no" out &&
    run 0 graph show nets/conv.onnx --unsupported && run 0 graph show mlp --unsupported
report "graph show --unsupported lists all nodes" $?
run 3 graph show "$here/../fuzz/corpus/onnx/samples_last.onnx" --batch 3 &&
    grep -q "output 'transposed' does not count samples first" err
report "refused: samples in the place of classes" $?
run 2 graph show nets/odd.onnx --loss mse && grep -q "allowed are cross_entropy" err &&
    run 2 graph show nets/odd.onnx:seq && run 2 graph show nets/odd.onnx --batch 3 --set batch=4
report "options of a model that make no sense" $?

while IFS='|' read -r file wanted; do
    run 3 graph show "nets/$file.onnx" && grep -qF "$wanted" err && [ ! -s out ]
    report "refused: $file" $?
done <<'END'
cut|are no ONNX model, or not all of one
cycle|reads what it computes
undefined|reads 'nothing', which nothing computes
sizes|8 columns by 9 rows; allowed are as many
types|is not supported: it multiplies others than a tensor and a weight
opset8|its opset is 8; allowed are 9 to 18
unknown|(Einsum, domain ai.onnx, opset 13) is not supported
if|(If, domain ai.onnx, opset 13): control flow is not supported
short|has 80 elements by its shape, and 317 bytes
outside|allowed are files in the model's folder
absolute|allowed are files in the model's folder
missing|'nothing.bin' beside it, which cannot be read
behind|is 320 bytes from byte 64 on of 'weights.bin'
far_behind|is 320 bytes from byte 9223372036854775807 on of 'weights.bin'
before|offset or length of its part of 'weights.bin' say otherwise
domain|(Gelu, domain com.microsoft, opset 1) is not supported: there is no such operator here
element|has element type 77; allowed are numbers
momentum_above|its momentum is -0.5; allowed are 0 to 1
nothing|dimension 1 of input 'x' is 0; allowed are sizes from 1
rowless|(Slice, domain ai.onnx, opset 13) is not supported: it has no rows
axis_twice|(Transpose, domain ai.onnx, opset 13): axis 0 occurs twice; allowed is once
left_out|(Split, domain ai.onnx, opset 13) is not supported: it has no rows
open|dimension 1 of input 'x' is left open without a name
whole|(Gemm, domain ai.onnx, opset 13) is not supported: it multiplies others than a tensor and a weight
quantised|weights that are quantised already; export the model before quantisation
promise|has 8000000000 elements by its shape
END
ln -s "$PWD/nets/weights.bin" nets/nothing.bin
run 3 graph show nets/missing.onnx && grep -q "without '..' and links" err
report "refused: a link beside the model" $?
mkfifo nets/pipe.onnx && mkdir nets/folder.onnx
run 3 graph show nets/pipe.onnx && grep -q "no regular file" err && run 3 graph show nets/folder.onnx &&
    run 5 graph show nets/none.onnx && printf 'no model' >nets/text.onnx && run 3 graph show nets/text.onnx
report "refused: a pipe, a folder, a text; a missing file has exit code 5" $?
# usage: nodes N NODE BYTE…: opset 13, and a graph of N nodes; the bytes are its length in protocol buffers
nodes() {
    perl -e '($n, $node, @length) = @ARGV; print pack("C*", 8, 7, 66, 2, 16, 13, 58, @length),
        ("\n" . pack("C", length $node) . $node) x $n' "$@" >nets/nodes.onnx
}
nodes 140000 $'\032\024many.many.many.nodes' 128 138 205 1 && run 3 graph show nets/nodes.onnx &&
    grep -q "it has 140000 nodes; allowed are at most 131072" err &&
    nodes 1000000 '' 128 137 122 && run 3 graph show nets/nodes.onnx &&
    grep -q "its messages take more than 32777296 bytes of memory" err
report "refused: too many nodes" $?
printf '\010\007:\200\224\353\334\003\n\0\n\0' >nets/nodes.onnx
run 3 graph show nets/nodes.onnx && grep -q "its 12 bytes are no ONNX model, or not all of one" err
report "refused: a graph that promises 1,000,000,000 bytes" $?
# A path in a job's option must not be read by slurmctld, slurmd or slurmstepd, whose plug-ins these are.
importer() { nm "$1" | grep -i 'onnx\|recorded_open' >out; }
if [ -e "$build/job_submit_tandem.so" ]; then
    importer "$build/libtandem.so" && nm "$build/job_submit_tandem.so" | grep -q ' tandem_graph_open$' &&
        ! importer "$build/job_submit_tandem.so" && ! importer "$build/spank_tandem.so" &&
        ! importer "$build/spank_tandem_planner.so"
    report "Slurm's plug-ins contain no importer" $?
else
    skip "Slurm's plug-ins" "they were built without Slurm's headers, or with sanitizers"
fi
echo "1..$n"
[ $failed = 0 ]
