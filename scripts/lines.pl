#!/usr/bin/perl
# scripts/lines.pl [COMMIT]: lines of code, without comments and blank lines, by folder; of the working tree,
# or of a commit.
use strict;
use warnings;
my $commit = shift;
my @files = split /\n/, $commit ? `git ls-tree -r --name-only $commit` : `git ls-files`;
my (%lines, %total);
my $comment_or_string = qr{(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')}s;
for my $file (grep { /\.(c|h|cc|cu|cuh|def)$/ } @files) {
    my $text = $commit ? `git show $commit:$file` : do {
        local $/;
        open my $in, '<', $file or die "$file: $!\n";
        <$in>;
    };
    $text =~ s{$comment_or_string}{defined $2 ? $2 : ($1 =~ tr/\n//cdr)}ge;
    my $n = grep { /\S/ } split /\n/, $text;
    my ($folder) = $file =~ m{^([^/]+)};
    $lines{$folder} += $n;
    my $is_other = $folder =~ /^(docs|bench|research|tools|scripts)$/;
    my $part = $folder eq 'tests' ? 'tests' : $is_other ? 'other' : 'product';
    $total{$part} += $n;
}
printf "%8d  %s\n", $lines{$_}, $_ for sort keys %lines;
printf "%8d  %s\n", $total{$_}, $_ eq 'product' ? 'product: all but tests and other' : $_
    for qw(product tests other);
