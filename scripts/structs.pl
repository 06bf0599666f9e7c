#!/usr/bin/perl
# scripts/structs.pl: python/tandem/_structs.py, the C structs and numbers that the Python package passes,
# from the public headers; `make structs` writes it, `make lint` holds it to them. CC: the compiler, whose
# preprocessor is used.
#
# Pointers: char is a text; a struct of this list, an integer or a double is an array that Python reads;
# anything else is an address.
use strict;
use warnings;

my @headers = qw(tandem.h advice.h trial.h kernels.h cuda_kernels.h advanced/predictor.h advanced/probe.h
    advanced/format.h advanced/step.h
    advanced/torch_trace.h);
# What functions take; what they hold by value follows.
my @wanted = map { "tandem_$_" } qw(cluster plan request allocation_request answer planned_step
    candidate advice graph recorded_call recorded_memory recorded_block recorded_reader recorded_product
    recorded_graph recorded_cost recorded_costs memory step_options
    op_row statistics product window estimated_gradient estimated_error estimate
    sensitivity_step sensitivity_estimate
    probe_sums probe_tensor torch_step torch_rank torch_summary
    trial_pair trial_question trial_result
    quantise_call cast_call dequantise_call windows_call product_s8 layer_operand linear_pass conv2d_s8
    conv3x3 rounding cuda_quantise_call cuda_dequantise_call cuda_product_call);
# Names that Python has for something else.
my %renamed = (tandem_graph => 'GraphStruct', tandem_plan => 'PlanStruct', tandem_advice => 'AdviceStruct',
    tandem_product => 'ProductOperands', tandem_estimate => 'EstimateStruct',
    tandem_memory => 'MemoryStruct');
my $constants = qr/^(?:F32|BF16|S8|F16|E4M3|E5M2|SCALE_(?:TENSOR|ROW|KNOWN)|MINIMIZE_\w+|CASE_\w+|MAX_CLASS|
    MAX_TRAINING_POINT|M(?:IN|AX)_REPLICATE|N_FORMAT|N_PROBE_PART|PROBE_(?:BLOCK|SKETCH)|TRIAL_\w+|
    READS_(?:FIRST|SECOND)|KEEPS_SECOND|COPIES_(?:INPUT|GRADIENT))$/x;

my %c_type = (
    'int' => 'c_int', 'unsigned' => 'c_uint', 'char' => 'c_char', 'unsigned char' => 'c_uint8',
    'float' => 'c_float', 'double' => 'c_double', 'size_t' => 'c_size_t',
    map { ("int${_}_t" => "c_int$_", "uint${_}_t" => "c_uint$_") } 8, 16, 32, 64
);
my $text = do {
    my $cc = $ENV{CC} // 'gcc';
    my $source = join '', map { "#include \"tandem/$_\"\n" } @headers;
    open my $out, '-|', "printf '$source' | $cc -E -P -Iinclude -" or die "$cc: $!\n";
    local $/;
    <$out>;
};
die "scripts/structs.pl: no preprocessed headers\n" unless $text;

# --- Numbers: all enumerators, and the names of enumerations ---
my (%value, @operators, @precisions);
sub value_of
{
    my ($expression) = @_;
    $expression =~ s/\b([A-Z]\w+)\b/exists $value{$1} ? $value{$1} : "undef"/ge;
    return $expression =~ /[^-+*<>|()\d\s\w]|undef|sizeof/ ? undef : eval $expression;    ## no critic
}
while ($text =~ /\benum(?:\s+(\w+))?\s*\{([^}]*)\}\s*(\w*)/g) {
    my ($body, $next) = ($2, 0);
    $c_type{$_} = 'c_int' for grep { $_ } $1, $3;
    for my $one (split /,/, $body) {
        my ($name, $given) = $one =~ /^\s*(\w+)\s*(?:=\s*(.*?))?\s*$/s or next;
        $next = value_of($given) if defined $given;
        $value{$name} = $next++ if defined $next;
        push @operators, lc $1 if $name =~ /^TANDEM_OP_(\w+)/;
        push @precisions, lc $1 if $name =~ /^TANDEM_PRECISION_(\w+)/;
    }
}

# --- Structs ---
my (%body, %python, @made, %is_made);
my $nested = qr/(\{(?:[^{}]++|(?-1))*\})/;
while ($text =~ /\bstruct\s+(tandem_\w+)\s*(?=$nested)/g) {
    my ($name, $members) = ($1, $2);
    $body{$name} = $members =~ s/^\{|\}$//gr;
}
sub python_name
{
    my ($c) = @_;
    return $renamed{$c} // join '', map { ucfirst } split /_/, $c =~ s/^tandem_//r;
}
my %is_done;
my %is_wanted = map { $_ => 1 } @wanted;

sub type_of    # of a member, by the words before its name
{
    my ($type, $stars) = @_;
    $type =~ s/\b(?:const|struct)\b//g;
    $type =~ s/^\s+|\s+$//g;
    my $known = exists $body{$type} ? python_name($type) : $c_type{$type};
    if (!$stars) {
        emit($type) if exists $body{$type};
        die "scripts/structs.pl: what is '$type'?\n" unless $known;
        return $known;
    }
    return 'POINTER(c_void_p)' if $stars > 1;
    return 'c_char_p' if $type eq 'char';
    if ($is_wanted{$type}) {
        emit($type);
        return $is_done{$type} ? "POINTER($known)" : 'c_void_p';    # within itself
    }
    my $is_array = $known && $type ne 'int8_t' && $known =~ /^c_(?:u?int(?:8|64)?|double)$/;
    return $is_array ? "POINTER($known)" : 'c_void_p';
}

sub members_of
{
    my ($members, @fields) = @_;
    $members =~ s/\bstruct\s+(tandem_\w+)\s*$nested/$1/g;            # its own body is known
    $members =~ s/\bunion\s*\{([^;{}]*;)[^{}]*\}\s*;/$1/g;    # of addresses: the first of them
    for my $one (split /;/, $members) {
        next unless $one =~ /\S/;
        if ($one =~ /\(\s*\*\s*(\w+)\s*\)/) {                # a function
            push @fields, [ $1, 'c_void_p' ];
            next;
        }
        my ($type, $names) = $one =~ /^\s*((?:const\s+|struct\s+|unsigned\s+(?=char\b))*\w+)\s*(.*?)\s*$/s;
        for my $declared (split /,/, $names) {
            my $stars = ($declared =~ tr/*//);
            my ($name, $dims) = $declared =~ /^[\s*]*(?:const[\s*]+)*(\w+)\s*((?:\[[^]]*\])*)\s*$/
                or die "scripts/structs.pl: cannot read '$declared' in '$one'\n";
            my $ctype = type_of($type, $stars);
            $ctype .= ' * ' . value_of($1) while $dims =~ s/\[([^][]*)\]$//;
            push @fields, [ $name eq 'from' ? 'from_' : $name, $ctype ];
        }
    }
    return @fields;
}

sub emit
{
    my ($c) = @_;
    return if $is_made{$c}++;
    my @fields = members_of($body{$c} // die "scripts/structs.pl: there is no struct $c\n");
    my $listed = join '', map { sprintf qq(        ("%s", %s),\n), @$_ } @fields;
    push @made, sprintf qq(class %s(Structure):\n    """%s"""\n\n    _fields_ = [\n%s    ]\n),
        python_name($c), $c, $listed;
    $is_done{$c} = 1;
}
emit($_) for @wanted;

my $used = join "\n", @made;
my @types = sort grep { $used =~ /\b$_\b/ } qw(c_char c_char_p c_double c_float c_int c_int8 c_int32 c_int64
    c_size_t c_uint c_uint8 c_uint32 c_uint64 c_void_p);
my @numbers;
for my $name (sort { $value{$a} <=> $value{$b} || $a cmp $b } grep { /^TANDEM_/ } keys %value) {
    my $short = $name =~ s/^TANDEM_//r;
    push @numbers, "$short = $value{$name}\n" if $short =~ $constants;
}
sub tuple { my ($name, @of) = @_; return "$name = (\n" . join('', map { qq(    "$_",\n) } @of) . ")\n"; }
print qq("""C structs and numbers of the public headers. Made by scripts/structs.pl: `make structs`."""\n\n),
    "from ctypes import POINTER, Structure\n",
    "from ctypes import (\n", (map { "    $_,\n" } @types), ")\n\n", sort(@numbers), "\n",
    tuple('OPERATORS', @operators), tuple('PRECISIONS', @precisions), "\n\n", join("\n\n", @made);
