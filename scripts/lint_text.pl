#!/usr/bin/perl
# scripts/lint_text.pl: what a compiler does not read. Prints FILE:LINE: finding; exits 1 where there is one.
#
#   words     no word of scripts/words.tsv is where that table forbids it
#   columns   no line of code or prose is longer than 110 columns (rows of Markdown tables, blocks of what
#             a command prints, and lines with an address may be)
#   paths     every file that a document or a comment names exists
#   names     every tandem_… name that a document or a comment gives exists in the code
#   unique    no function of the product has the name of another
#   locale    no library folder prints or reads a number by what the host program's locale says, nor asks it
#             what a letter is (base/plain_text.h does without)
use strict;
use warnings;
use utf8;
use open qw(:std :encoding(UTF-8));

my $columns = 110;
my @tracked = grep { -f && !-l } split /\n/, `git ls-files`;
my @recorded = (qr{^tests/fuzz/corpus/}, qr{^tests/data/}, qr{^LICENSE$},
    qr{^tests/cli/.*\.(out|err|code|json|csv|txt|svg)$});
my @files;
for my $file (@tracked) {
    push @files, $file unless grep { $file =~ $_ } @recorded;
}
my @code = grep { /\.(c|h|cc|cu|def)$/ } @files;
my @text = grep { /\.(md|1)$/ || /^(Makefile|\.ci\/run)$/ || /\.(mk|sh|pl|sql)$/ } @files;
my $found = 0;
my %content;
sub content
{
    my ($file) = @_;
    return $content{$file} //= do {
        open my $in, '<', $file or die "$file: $!\n";
        local $/;
        my $all = <$in>;
        defined $all ? $all : '';
    };
}
sub finding
{
    my ($file, $line, $what) = @_;
    print "$file:$line: $what\n";
    $found++;
}

# A source in three parts that keep its lines: code without comments and strings, comments, strings.
my %parts;
sub parts
{
    my ($file) = @_;
    return $parts{$file} if $parts{$file};
    my ($code, $comment, $string) = ('', '', '');
    my $source = content($file);
    while ($source =~ m{\G(?:(/\*.*?\*/|//[^\n]*)|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|([^/"']+|.))}gs) {
        my ($c, $s, $k) = ($1, $2, $3);
        my $blank = defined $c ? $c : defined $s ? $s : $k;
        $blank =~ s/[^\n]/ /g;
        $comment .= defined $c ? $c : $blank;
        $string .= defined $s ? $s : $blank;
        $code .= defined $k ? $k : $blank;
    }
    return $parts{$file} = { code => $code, comment => $comment, string => $string };
}
sub each_line
{
    my ($text, $do) = @_;
    my $n = 0;
    $do->($_, ++$n) for split /\n/, $text, -1;
}
# A glob of words.tsv: * means anything.
sub matches
{
    my ($file, $globs) = @_;
    for my $glob (split /,/, $globs) {
        my $pattern = join '.*', map { quotemeta } split /\*/, $glob, -1;
        return 1 if $file =~ /^$pattern$/;
    }
    return 0;
}

# --- words: regex, what to write instead, where it is allowed. Each is matched against names in code; one
# that begins with `prose:`, against comments, strings and documents. ---
my (%names, @prose);
open my $table, '<', 'scripts/words.tsv' or die "scripts/words.tsv: $!\n";
while (my $row = <$table>) {
    chomp $row;
    next if $row =~ /^(#|$)/;
    my ($pattern, $instead, $allowed) = split /\t/, $row;
    die "scripts/words.tsv:$.: three columns, by tabulators\n" unless defined $allowed;
    my $prose = $pattern =~ s/^prose://;
    my $rule = { re => qr/$pattern/, instead => $instead, allowed => $allowed };
    if ($prose) { push @prose, $rule } else { push @{ $names{rules} }, $rule }
}
my %judged; # name -> rules that forbid it
for my $file (@code) {
    each_line(parts($file)->{code}, sub {
        my ($line, $n) = @_;
        while ($line =~ /\b([A-Za-z_]\w*)/g) {
            my $name = $1;
            $judged{$name} //= [ grep { $name =~ $_->{re} } @{ $names{rules} } ];
            for my $rule (@{ $judged{$name} }) {
                finding($file, $n, "`$name`: write $rule->{instead}") unless matches($file, $rule->{allowed});
            }
        }
    });
}
my $any_prose = @prose ? join '|', map { $_->{re} } @prose : '(?!)';
for my $file (@code, @text) {
    next if $file eq 'scripts/words.tsv' || $file eq 'docs/glossary.md' || $file eq 'docs/CHANGELOG.md';
    my @parts = $file =~ /\.(c|h|cc|cu|def)$/ ? @{ parts($file) }{qw(comment string)} : content($file);
    for my $part (@parts) {
        each_line($part, sub {
            my ($line, $n) = @_;
            return unless $line =~ /$any_prose/;
            for my $rule (@prose) {
                finding($file, $n, "`$&`: write $rule->{instead}")
                    if $line =~ $rule->{re} && !matches($file, $rule->{allowed});
            }
        });
    }
}

# --- columns ---
for my $file (@code, @text) {
    my $printed = 0;
    each_line(content($file), sub {
        my ($line, $n) = @_;
        $printed = !$printed if $file =~ /\.md$/ && $line =~ /^```/;
        return if $printed;
        return if length $line <= $columns || ($file =~ /\.md$/ && $line =~ /^\s*\|/)
            || $line =~ m{https?://\S{60}};
        finding($file, $n, length($line) . " columns, of $columns");
    });
}

# --- paths and names ---
my %exists = map { $_ => 1 } @tracked;
my %folder;
for (@tracked) {
    my $path = $_;
    $folder{$path} = 1 while $path =~ s{/[^/]*$}{};
}
my %known;
for my $file (@code) {
    my $code = parts($file)->{code};
    $known{$1} = 1 while $code =~ /\b(\w+)/g;
    my $string = parts($file)->{string}; # environment variables, members of JSON
    $known{$1} = 1 while $string =~ /\b((?:tandem|TANDEM)_\w+)/g;
}
for my $file (grep { /\.(sql|map|proto|in|pl|sh|py|mk)$/ || $_ eq 'Makefile' } @tracked) {
    my $all = content($file);
    $known{$1} = 1 while $all =~ /\b(\w+)/g;
}
my $tops = join '|', map { quotemeta } sort grep { !m{/} && $_ ne 'build' } keys %folder;
sub named_things
{
    my ($file, $text) = @_;
    each_line($text, sub {
        my ($line, $n) = @_;
        while ($line =~ m{(?<![\w./-])((?:$tops)(?:/[\w.+-]+)+)}g) {
            my $path = $1 =~ s/[.]$//r;
            next if $path =~ m{NAME|KIND|X\b} || $exists{$path} || $folder{$path} || $path !~ m{\.\w+$};
            next if $path =~ m{^tests/cli/(NAME|.*\.(cmd|out|err|code))$};
            finding($file, $n, "$path: no such file");
        }
        while ($line =~ /(?<![\w*-])((?:tandem|TANDEM)_\w*\w)(\*|…)?/g) {
            my ($name, $after) = ($1, $2 // '');
            next if $known{$name} || $name =~ /^tandem_isa_/ || $after || $name =~ /^tandem_.*[A-Z]$/;
            finding($file, $n, "$name: no such name");
        }
    });
}
for my $file (@code) {
    named_things($file, parts($file)->{comment});
}
for my $file (grep { /\.(md|1)$/ && !/CHANGELOG/ && $_ ne 'docs/glossary.md' } @text) {
    named_things($file, content($file));
    my $folder = $file =~ m{^(.*)/} ? "$1/" : '';
    each_line(content($file), sub {
        my ($line, $n) = @_;
        while ($line =~ /\]\(([^)#\s]+)(#[^)]*)?\)/g) {
            my $target = $1;
            next if $target =~ /^[a-z]+:/;
            my $path = $folder . $target;
            1 while $path =~ s{(^|/)[^/]+/\.\./}{$1};
            $path =~ s{/$}{};
            finding($file, $n, "$target: no such file") unless $exists{$path} || $folder{$path};
        }
    });
}

# --- unique: definitions, whose opening brace ends the line or is alone on the next one ---
my %defined;
my $begin = qr/^(?!typedef|struct\s+\w+\s*\{|enum|else|return|#)[A-Za-z_][\w\s*]*?/ms;
for my $file (grep { /\.(c|cc|cu)$/ && !m{^(tests|docs|bench)/} && !m{^kernels/cpu/isa/} } @code) {
    my $code = parts($file)->{code};
    while ($code =~ /$begin\b\**(\w+)\(([^;{}]*?)\)\s*\{/gms) {
        my $name = $1;
        next if $name =~ /^(if|for|while|switch|main|ISA|__launch_bounds__|sizeof|__attribute__)$/;
        my $line = 1 + (substr($code, 0, $-[0]) =~ tr/\n//);
        if ($defined{$name} && $defined{$name} !~ /^\Q$file\E:/) {
            finding($file, $line,
                "$name(): its name is in $defined{$name}, too; name it after what it works on");
        } else {
            $defined{$name} = "$file:$line";
        }
    }
}
# --- locale: a file that calls tandem_plain_begin may print to a stream ---
my $asks_locale = qr/\b(strto(?:d|f|ld)|atof|v[a-z]*n?printf|is(?:al|low|up|sp|pr|pu|gr|bl|cn|di|xd)[a-z]+
    |to(?:upp|low)er|strn?casecmp|strcasestr|strcoll|strxfrm|strfmon|setlocale|localeconv)\s*\(/x;
my $formats = qr/\b([a-z]*n?printf|[fs]*scanf)\s*(\((?:[^()"]++|"(?:\\.|[^"\\])*"|(?2))*\))/;
my $float = qr/%[-+ #0-9.*]*(?:l|L)?[aefgAEFG]/;
my $libraries = qr{^(base|graph|profiles|predictor|replayer|trace|allocator|plugins|backend|report|runtime)/};
for my $file (grep { $_ =~ $libraries && $_ ne 'base/plain_text.h' } @code) {
    my $code = parts($file)->{code};
    while ($code =~ /$asks_locale/g) {
        my $line = 1 + (substr($code, 0, $-[0]) =~ tr/\n//);
        finding($file, $line, "$1(): the locale decides; use base/plain_text.h");
    }
    my $all = content($file) =~ s{(/\*.*?\*/)}{$1 =~ s/[^\n]/ /gr}gser;
    while ($all =~ /$formats/g) {
        my ($name, $line) = ($1, 1 + (substr($all, 0, $-[0]) =~ tr/\n//));
        my $literals = join '|', $2 =~ /"((?:\\.|[^"\\])*)"/g;
        next if $literals =~ s/%%//gr !~ $float || ($name eq 'fprintf' && $code =~ /\btandem_plain_begin\b/);
        finding($file, $line, "$name() of a number: the locale decides; use tandem_plain_print");
    }
}
print 'text: ' . (@code + @text) . " files, $found findings\n";
exit($found ? 1 : 0);
