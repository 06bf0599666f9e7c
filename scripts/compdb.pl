#!/usr/bin/perl
# scripts/compdb.pl: makes compile_commands.json of what `make -nB` prints; `make compdb` calls it.
use strict;
use warnings;
use Cwd;
my $directory = getcwd();
my @entry;
while (my $command = <STDIN>) {
    chomp $command;
    next unless $command =~ /^\S.* -I\. .* -o \S+ / && $command =~ / (\S+\.(?:c|cc|cu))(?: |$)/;
    my $file = $1;
    $command =~ s/(["\\])/\\$1/g;
    push @entry, qq({"directory": "$directory", "file": "$file", "command": "$command"});
}
print "[\n", join(",\n", @entry), "\n]\n";
