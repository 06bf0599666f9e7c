#!/usr/bin/perl
# scripts/lint_structure.pl [BUILD]: how the folders depend on each other. Prints FILE: finding; exits 1 where
# there is one.
#
#   up       a file includes, or an object calls, what its folder may not use (folders.mk); a weak symbol
#            counts like any other
#   private  a file includes a header of another folder that is not public; base/ and tests are free, and
#            programs that are not installed may include what they like
#   circle   files of a folder call each other in a circle; tables that list their folder's files are excepted
#            by name
#   alone    a header does not compile by itself
#
# Reads the objects in BUILD/obj (build): run `make` first.
use strict;
use warnings;

my $build = shift // $ENV{B} // 'build';
# Tables: they point down to what they list, which points up to the table for a helper or a neighbouring row.
my %table = map { $_ => 1 } qw(bench/program/bench cli/main cli/options research/study);
my $found = 0;
sub finding { print "$_[0]: $_[1]\n"; $found++; }

my (%uses, %shared, %is_program);
open my $mk, '<', 'folders.mk' or die "folders.mk: $!\n";
my $rules = do { local $/; <$mk> } =~ s/\\\n/ /gr;
$uses{$1} = { map { $_ => 1 } $1, split ' ', $2 } while $rules =~ /^USES_(\w+) =(.*)/gm;
%shared = map { $_ => 1 } split ' ', $1 if $rules =~ /^SHARED =(.*)/m;
%is_program = map { $_ => 1 } split ' ', $1 if $rules =~ /^PROGRAMS =(.*)/m;
my ($folders) = $rules =~ /^FOLDERS =(.*)/m;
$uses{$_} = { map { $_ => 1 } $_, split ' ', $folders } for keys %is_program;

my @files = grep { -f } split /\n/, `git ls-files '*.c' '*.h' '*.cc' '*.cu'`;
sub top { return $_[0] =~ m{^(\w+)/} ? $1 : ''; }
sub source_of # of an object's path below obj/
{
    my ($object) = @_;
    $object =~ s/\.o$//;
    $object =~ s/\.cu$//;
    $object =~ s{^isa/\w+/}{kernels/cpu/isa/};
    $object =~ s{^simt/}{kernels/cuda/};
    return $object;
}

# --- Symbols: which object defines what, and which asks for it ---
my (%defined, %asks);
my $objects = "find . -name '*.o' ! -path './tests/*' | sed 's|^\\./||' | sort";
open my $nm, '-|', "cd $build/obj && $objects | xargs nm -A 2>/dev/null"
    or die "$build/obj: $!\n";
while (<$nm>) {
    my ($object, $kind, $symbol) = m{^([^:]+):[0-9a-f ]* ([A-Za-z]) (\S+)$} or next;
    my $source = source_of($object);
    next unless -f "$source.c" || -f "$source.cc" || -f "$source.cu"; # of a file that is gone, or made
    if ($kind =~ /[Uwv]/) { $asks{$source}{$symbol} = 1 }
    elsif ($kind =~ /[TDBRVW]/) { $defined{$symbol} = $source }
}
close $nm;
die "$build/obj holds no objects; run make\n" unless %defined;
my %calls; # source -> source -> a symbol
for my $from (sort keys %asks) {
    for my $symbol (sort keys %{ $asks{$from} }) {
        my $to = $defined{$symbol} // next;
        next if $to eq $from;
        $calls{$from}{$to} //= $symbol;
        my ($f, $t) = (top($from), top($to));
        finding($from, "$symbol is in $to: $f/ may not use $t/") if $uses{$f} && $uses{$t} && !$uses{$f}{$t};
    }
}

# --- Includes: a public header belongs to the folder that defines its functions ---
my %owner;
for my $header (grep { m{^include/tandem/} } @files) {
    open my $in, '<', $header or next;
    my $text = do { local $/; <$in> };
    $text =~ s{/\*.*?\*/}{}gs;
    my %votes;
    while ($text =~ /\b(tandem_\w+)\(/g) { $votes{ top($defined{$1}) }++ if $defined{$1}; }
    my ($most) = sort { $votes{$b} <=> $votes{$a} || $a cmp $b } keys %votes;
    $owner{ $header =~ s{^include/}{}r } = $most if $most;
}
for my $file (@files) {
    my $from = $file =~ m{^include/(.*)} ? $owner{$1} : top($file);
    next unless $from && $uses{$from};
    open my $in, '<', $file or next;
    while (<$in>) {
        my ($header) = /^\s*#\s*include\s+"([^"]+)"/ or next;
        my $to = $header =~ m{^tandem/} ? $owner{$header} : top($header);
        next unless $to && $uses{$to} && $to ne $from;
        if (!$uses{$from}{$to}) {
            finding("$file:$.", "includes $header: $from/ may not use $to/");
        } elsif (!$is_program{$from} && $header !~ m{^(tandem|base)/} && !$shared{$header}) {
            finding("$file:$.", "includes $header, which is private to $to/");
        }
    }
}

# --- Circles: Tarjan's strongly connected components of each folder's calls ---
my (%index, %low, %on, @stack, $n);
sub visit
{
    my ($v) = @_;
    $index{$v} = $low{$v} = $n++;
    push @stack, $v;
    $on{$v} = 1;
    for my $w (sort keys %{ $calls{$v} }) {
        next if top($w) ne top($v) || $table{$w} || $table{$v};
        if (!defined $index{$w}) {
            visit($w);
            $low{$v} = $low{$w} if $low{$w} < $low{$v};
        } elsif ($on{$w} && $index{$w} < $low{$v}) {
            $low{$v} = $index{$w};
        }
    }
    return if $low{$v} != $index{$v};
    my @circle;
    while (1) {
        my $w = pop @stack;
        $on{$w} = 0;
        push @circle, $w;
        last if $w eq $v;
    }
    return if @circle < 2;
    my %in = map { $_ => 1 } @circle;
    my @edges;
    for my $a (sort @circle) {
        push @edges, "$a -> $_ ($calls{$a}{$_})" for grep { $in{$_} } sort keys %{ $calls{$a} };
    }
    finding((sort @circle)[0], "a circle of " . @circle . " files: " . join(', ', @edges));
}
$n = 0;
no warnings 'recursion';
for my $v (sort keys %calls) { visit($v) unless defined $index{$v}; }

# --- Headers ---
my @flags = ('-D_GNU_SOURCE', '-I.', '-Iinclude', "-I$build/generated", '-fsyntax-only', '-w');
for my $header (grep { /\.h$/ && !m{^scripts/} } @files) {
    my $cuda = $header =~ m{^(backend|kernels|tests)/cuda/};
    next if $cuda && !-d '/usr/local/cuda/include';
    my @more = $header =~ m{^kernels/cpu/isa/} ? ('-DTANDEM_ISA=avx2', '-mavx2', '-mfma', '-mf16c') : ();
    push @more, '-isystem', '/usr/local/cuda/include' if $cuda;
    my $c = join ' ', 'gcc', '-std=c11', @flags, @more, '-x c', $header;
    # What CUDA's own compiler declares.
    push @more, '-include', 'tests/cuda/simt.h' if $header =~ m{^(backend|kernels)/cuda/};
    my $cc = join ' ', 'g++', '-std=c++17', @flags, @more, '-x c++', $header;
    next if system("$c 2>/dev/null") == 0
        || ($cuda || $header =~ /simt|gloo/) && system("$cc 2>/dev/null") == 0;
    my ($why) = `$c 2>&1` =~ /error: (.*)/;
    finding($header, 'does not compile alone: ' . ($why // '?'));
}
print "structure: $found findings\n";
exit($found ? 1 : 0);
