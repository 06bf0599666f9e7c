#!/usr/bin/perl
# scripts/api.pl: the API reference, in Markdown, from the public headers; `make api` writes it to
# build/api.md.
#
# A header's first comment is its introduction. Each comment directly above declarations describes
# them; a comment after one, or within one, stays in it. A line `/* --- TITLE --- */` begins a section.
use strict;
use warnings;
use open qw(:std :encoding(UTF-8));

my @stable = sort glob 'include/tandem/*.h';
my @advanced = sort glob 'include/tandem/advanced/*.h';
print "# API reference\n\n",
    "Made from the headers by `make api`. Stable headers keep their promise within a major version;\n",
    "advanced ones change with the version of the library.\n\n";
sub anchor { my ($name) = $_[0] =~ m{([^/]+)\.h$}; return $name =~ tr/./-/r; }
for my $list ([ 'Stable', @stable ], [ 'Advanced', @advanced ]) {
    my ($title, @headers) = @$list;
    next unless @headers;
    print "$title: ", join(', ', map { '[' . s{include/}{}r . '](#' . anchor($_) . ')' } @headers), "\n\n";
}

# The text of a comment, as paragraphs of Markdown; indented lines stay a block of code.
sub prose
{
    my ($text) = @_;
    $text =~ s{^/\*\s?|\s*\*/$}{}g;
    $text =~ s/^[ \t]*\* ?//gm;
    $text =~ s/([<>])/\\$1/g unless $text =~ /^    /m;
    return $text;
}

for my $header (@stable, @advanced) {
    open my $in, '<', $header or die "$header: $!\n";
    my $text = do { local $/; <$in> };
    print '## ', anchor($header), "\n\n`#include <", $header =~ s{include/}{}r, ">`\n\n";
    $text =~ s{\A\s*(/\*.*?\*/)}{}s and print prose($1) =~ s/^\S+\.h: //r, "\n\n";
    # What guards the header, and what C++ and the linker need of it, says nothing to a reader.
    $text =~ s{^/\* clang-format off \*/.*?^/\* clang-format on \*/\n}{}gms;
    $text =~ s/^TANDEM_(BEGIN|END)_DECLARATIONS\n//gm;
    $text =~ s/^#(ifndef \w+_H|define \w+_H|endif\b[^\n]*|pragma[^\n]*|include[^\n]*)\n//gm;
    for my $block (split /\n\s*\n/, $text) {
        $block =~ s/^\s+|\s+$//g;
        next unless length $block;
        if ($block =~ s{^/\* --- (.*?) -+ \*/\s*}{}s) { print "### $1\n\n"; }
        # A block is comments and declarations in turn.
        while (length $block) {
            if ($block =~ s{^(/\*.*?\*/)[ \t]*(\n|$)\s*}{}s) {
                print prose($1), "\n\n";
            } elsif ($block =~ s{^(.*?)(?=^/\*|\z)}{}ms) {
                my $code = $1;
                $code =~ s/\s+$//;
                print "```c\n$code\n```\n\n" if $code =~ /\S/;
            }
        }
    }
}
