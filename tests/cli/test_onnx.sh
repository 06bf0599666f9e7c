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
first_loss() { # FILE: of its first step on the data set
    run 0 train --model "nets/$1.onnx" --data data --device weakest --batch 4 --steps 1 --eval 0 --seed 4 &&
        sed -n 's/.*loss \([0-9.]*\) .*/\1/p' out
}
wanted=$(first_loss takes_image) && [ -n "$wanted" ] && ! grep -qv '^warning: rank .* with another run' err &&
    fine=0 || fine=1
for name in flat rows row pixels deep turned; do
    [ "$(first_loss "takes_$name")" = "$wanted" ] || fine=1
done
report "images as a net takes them: flattened, in rows, with channels last" "$fine"
says() { first_loss "takes_$1" >loss && [ -s loss ] && grep -qF "$2" err; }
says flat "data 'data': images of 28 × 28 × 1 are taken as 784 (flattened, row by row)" &&
    says rows "are taken as 28 × 28 (row by row)" && says last "are taken as 28 × 28 × 1 (row by row)" &&
    says colour "are taken as 3 × 28 × 28 (channels first, grey in every channel)" &&
    says larger "images of 28 × 28 × 1 are resized to 56 × 56 × 1 (bilinear)"
report "it is said what becomes of images" $?
fine=0
while IFS='|' read -r name wanted; do
    for command in "train --steps 1 --eval 0" "sensitivity --steps 2" "profile"; do
        # shellcheck disable=SC2086
        run 3 $command --model "nets/takes_$name.onnx" --data data --device weakest --batch 4 \
            --db refused.db && grep -qF "$wanted" err && grep -qE "28 × 28 × 1|one label" err || fine=1
    done
done <<'END'
table|takes samples of 20, but data 'data' has images
spectrum|takes samples of 34 × 96, but
stack|takes samples of 4 × 14 × 14 (channels × height × width), but
long|takes samples of 1 × 1 × 96 (channels × height × width), but
spread|takes samples of 1 × 20 × 96 (channels × height × width), but
colours_last|takes samples of 224 × 224 × 3 (channels × height × width), but
many|predicts 28 for each sample
scalar|takes samples of 1, but
two|takes samples of 784 numbers in several inputs, but
END
run 3 train --model mlp:image=1x1x20 --data data --device weakest --steps 1 --eval 0 &&
    grep -q "takes samples of 1 × 1 × 20 (height × width × channels).* Use image=28x28x1" err || fine=1
report "refused with both shapes: samples that no image becomes" "$fine"
losses() { # FILE: of two steps on noise
    run 0 train --model "nets/$1.onnx" --device weakest --steps 2 --eval 0 &&
        sed -n 's/.*\(loss .*\);.*/\1/p' out
}
kinds nets/as_initializers.onnx && cp kinds one && kinds nets/as_nodes.onnx && cmp -s kinds one &&
    run 0 graph show nets/as_nodes.onnx && grep -q "^shift  *bias .* 8 " out &&
    grep -q " 98 parameters" out && losses as_nodes >one && losses as_initializers >two && cmp one two &&
    [ -s one ]
report "weights in nodes are trained as initializers are, and begin with the same numbers" $?
same_losses() { losses "$1" >one && losses "$2" >two && cmp one two && [ -s one ]; }
same_losses selu selu_in_parts && same_losses shifted shifted_before &&
    kinds nets/sizes_in_column.onnx &&
    [ "$(cat kinds)" = "images reshape linear bias labels cross_entropy " ] &&
    run 0 graph show nets/one_letter.onnx && grep -q "^m.n.0.Relu  *relu" out
report "one function in two ways; sizes that are reshaped; a module of one letter" $?
kinds nets/zeros.onnx && grep -q " 90 parameters" out && kinds nets/zeros_added.onnx &&
    grep -q "^c  *bias .* 8 " out
report "a bias of zeros in a node is no mask" $?
run 0 graph show nets/tied.onnx && grep -q " 66 parameters" out && run 0 graph show nets/untied.onnx &&
    grep -q " 132 parameters" out && run 0 train -q --model nets/tied.onnx --device weakest --steps 2 --eval 0
report "a table that is stored twice, once transposed, is one parameter" $?
kinds nets/noop.onnx && [ "$(cat kinds)" = "images reshape linear bias labels cross_entropy " ] &&
    kinds nets/opset7.onnx && kinds nets/opset8.onnx
report "no axes may mean none; opsets 7 and 8" $?
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
run 1 graph show nets/after_unknown.onnx --unsupported && grep -c "no such operator" out >count &&
    grep -q "^4 of 6 nodes are not supported" out && grep -q "^1 more, after them, could not be" out &&
    [ "$(cat count)" = 4 ] && run 1 graph show nets/after_declared.onnx --unsupported &&
    grep -q "^4 of 6 nodes are not supported" out && ! grep -q "could not be judged" out &&
    run 1 graph show nets/recurrent.onnx --unsupported --json && grep -q '"unjudged": 2' out &&
    run 1 graph show nets/if.onnx --unsupported && grep -q "^node '/a/If'.*control flow" out
report "graph show --unsupported goes on after a node, and says what could not be judged" $?
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
opset6|its opset is 6; allowed are 7 to 18
auto_pad|auto_pad 'OTHER'; allowed are NOTSET, SAME_UPPER, SAME_LOWER and VALID
parts|(Split, domain ai.onnx, opset 18): different numbers of sizes and outputs
recurrent|(LSTM, domain ai.onnx, opset 13) is not supported: recurrent layers are not supported
unknown|(Einsum, domain ai.onnx, opset 13) is not supported
if|(If, domain ai.onnx, opset 13): control flow is not supported
short|has 80 elements by its shape, and 317 bytes
outside|allowed are files in the model's folder
absolute|allowed are files in the model's folder
missing|'nothing.bin' beside it, which cannot be read
past_end|is 320 bytes from byte 64 on of 'weights.bin'
far_past_end|is 320 bytes from byte 9223372036854775807 on of 'weights.bin'
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
while IFS='|' read -r bytes wanted; do
    # shellcheck disable=SC2059 # with escapes
    printf "$bytes" >nets/kind.onnx
    run 3 graph show nets/kind.onnx && grep -qF "it is $wanted" err
    report "refused: $wanted" $?
done <<'END'
PK\003\004\024\000archive/data.pkl|a file of PyTorch (a zip archive)
\200\002\212\012l\374|a pickle of Python, such as an old file of PyTorch
\200\004\225\020\000\000|a pickle of Python; allowed is an ONNX model
\020\000\000\000\000\000\000\000{"w":{"dtype":"F3|a safetensors file: weights without a model
{"schema": "1.0.2", "nodes": []}|JSON; allowed is an ONNX model. Give a captured module
\211HDF\r\n\032\n\000\000|an HDF5 file, such as one of Keras
\034\000\000\000TFL3\000\000|a model of TensorFlow Lite
version https://git-lfs.github.com/spec/v1\noid sha256:1\n|a pointer of Git LFS
<!DOCTYPE html><html>|a page of HTML or XML
no model|text; allowed is an ONNX model
|empty; allowed is an ONNX model
END
# usage: promise N: a node, and a tensor of N floats, whose data are a hole of the file
promise() {
    perl -e 'sub v { my ($n, $s) = (shift, ""); for (; $n > 127; $n >>= 7) { $s .= chr($n & 127 | 128) }
            $s . chr $n }
        $n = shift;
        $t = "\x08" . v($n) . "\x10\x01\x42\x01w\x4a" . v(4 * $n);
        $node = "\x0a\x01x\x0a\x01w\x12\x01y\x22\x03Add";
        $all = length($t) + 4 * $n;
        $g = "\x0a" . v(length $node) . $node . "\x62\x03\x0a\x01y\x2a" . v($all);
        print "\x08\x07\x42\x02\x10\x0d\x3a" . v(length($g) + $all) . $g . $t' "$1" >nets/sparse.onnx
    truncate -s "+$((4 * $1))" nets/sparse.onnx
}
# in 600 MB of memory, where no sanitizer needs more
limited() { (nm "$tandem" | grep -q __asan_init || ulimit -v 600000; run "$@"); }
promise 500000000 && limited 3 graph show nets/sparse.onnx &&
    grep -q "reads 'x', which nothing computes" err &&
    truncate -s 2000000000 nets/hole.onnx && limited 3 graph show nets/hole.onnx &&
    grep -q "are no ONNX model" err && cp -r data holes && rm holes/train-images-idx3-ubyte.gz &&
    { idx 0; idx 0; idx 8; idx 3; idx 0; idx 16; idx 0; idx 0; count 28; count 28; } \
        >holes/train-images-idx3-ubyte &&
    truncate -s $((16 + (16 << 16) * 784)) holes/train-images-idx3-ubyte &&
    limited 3 train --model mlp --data holes --device weakest --steps 1 --eval 0 &&
    grep -q "of which .* were never written" err
report "memory follows the bytes that a file has, not its holes" $?
# A path as long as paths may be, here from the working directory.
long=nets part=$(printf 'folder_of_models%.0s' {1..15})
for _ in {1..12}; do long=$long/$part; done
mkdir -p "$long" && cp nets/conv.onnx "$long/net.onnx" && long=$long/net.onnx &&
    run 0 graph show "$long" && tail -n 1 out | grep -q "$long at batch 16" &&
    run 0 profile -q --model "$long" --device weakest --batch 4 --db long.db &&
    run 0 replay -q --model "$long" --device weakest --batch 4 --db long.db &&
    run 0 sensitivity -q --model "$long" --data data --device weakest --batch 4 --steps 2 --db long.db &&
    run 0 allocate -q --model "$long" --device weakest --batch 4 --db long.db -o long.json --predict &&
    run 0 train -q --plan long.json --steps 2 --eval 0 --checkpoint long.ckpt &&
    run 0 train -q --plan long.json --steps 3 --eval 0 --resume long.ckpt && [ ${#long} -gt 2900 ] &&
    cp "$long" other.onnx &&
    run 3 train -q --model other.onnx --batch 4 --device weakest --steps 3 --eval 0 --resume long.ckpt &&
    grep -q "is of model '.*net.onnx', this run trains 'other.onnx'" err &&
    run 3 train -q --plan long.json --data data/train-labels-idx1-ubyte --steps 1 &&
    grep -q "nets/folder.*….*net.onnx' takes images.*Give --data" err
report "a path of 2,900 characters through all commands, and errors that end with their advice" $?
# A path in a job's option must not be read by slurmctld, slurmd or slurmstepd, whose plug-ins these are.
importer() { nm "$1" | grep -i 'onnx\|recorded_open' >out; }
if [ -e "$build/job_submit_tandem.so" ]; then
    importer "$build/libtandem.so" &&
        nm "$build/job_submit_tandem.so" | grep -q ' tandem_graph_open_limited$' &&
        ! importer "$build/job_submit_tandem.so" && ! importer "$build/spank_tandem.so" &&
        ! importer "$build/spank_tandem_planner.so"
    report "Slurm's plug-ins contain no importer" $?
else
    skip "Slurm's plug-ins" "they were built without Slurm's headers, or with sanitizers"
fi
echo "1..$n"
[ $failed = 0 ]
