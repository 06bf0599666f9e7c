#!/usr/bin/perl
# scripts/until_silent.pl LOG PROGRAM [ARGUMENT…]: runs a program, whose output goes to LOG, and ends it where
# it hangs. It hangs if it has not printed and its processes have used no processor time for TEST_SILENCE
# seconds [120], or if they have used TEST_PROCESSOR seconds of it [900] without a line. Neither counts the
# time in which a loaded machine lets it wait. Exit code: that of the program; 124: it was silent, 125: it
# went round in a circle. Then LOG says so.
use strict;
use warnings;
use POSIX qw(:sys_wait_h :signal_h setpgid sysconf _SC_CLK_TCK);

my ($log, @program) = @ARGV;
die "usage: until_silent.pl LOG PROGRAM [ARGUMENT...]\n" unless @program;
my ($max_silence_s, $max_processor_s) = ($ENV{TEST_SILENCE} // 120, $ENV{TEST_PROCESSOR} // 900);
my $ticks_per_s = sysconf(_SC_CLK_TCK);

my $pid = fork() // die "fork: $!\n";
if (!$pid) {
    setpgid(0, 0);
    open STDIN, '<', '/dev/null' or die "/dev/null: $!\n";
    open STDOUT, '>', $log or die "$log: $!\n";
    open STDERR, '>&', \*STDOUT or die "$log: $!\n";
    exec { $program[0] } @program or do { print "$program[0]: $!\n"; POSIX::_exit(127) };
}
setpgid($pid, $pid);

# Of the program's processes, wherever they put themselves: its group, and what descends from it. Their own
# time and that of children that they have waited for.
sub read_processes
{
    my (%parent, %group, %used);
    for my $file (glob '/proc/[0-9]*/stat') {
        open my $in, '<', $file or next;
        my ($of, $rest) = (<$in> // '') =~ /^(\d+) \(.*\) (.*)/s or next;
        my @field = split ' ', $rest; # from the state on, which is the third
        ($parent{$of}, $group{$of}) = @field[1, 2];
        $used{$of} = $field[11] + $field[12] + $field[13] + $field[14];
    }
    my %mine = map { $_ => 1 } grep { $_ == $pid || $group{$_} == $pid } keys %parent;
    my $n = -1;
    while ($n != keys %mine) {
        $n = keys %mine;
        $mine{$_} = 1 for grep { $mine{ $parent{$_} } } keys %parent;
    }
    my $sum = 0;
    $sum += $used{$_} // 0 for keys %mine;
    return ($sum, [ keys %mine ]);
}

sub end_all
{
    my ($signal) = @_;
    my (undef, $of) = read_processes();
    kill $signal, -$pid, @$of;
}
$SIG{$_} = sub { end_all('TERM'); exit 130 } for qw(INT TERM HUP);

# Counted in looks, a second apart: time in which this process did not run itself, e.g. while the machine was
# suspended, is none of silence.
my ($silent_s, $bytes, $used, $used_at_line, $code) = (0, -1, -1, 0, undef);
while (!defined $code) {
    for (1 .. 20) { # a short program does not wait for the next look
        if (waitpid($pid, WNOHANG) == $pid) {
            $code = $? & 127 ? 128 + ($? & 127) : $? >> 8;
            last;
        }
        select undef, undef, undef, 0.05;
    }
    last if defined $code;
    my ($now) = read_processes();
    my $size = -s $log // 0;
    $silent_s = $size == $bytes && $now == $used ? $silent_s + 1 : 0;
    $used_at_line = $now if $size != $bytes || $now < $used_at_line;
    ($bytes, $used) = ($size, $now);
    my $circle_s = ($now - $used_at_line) / $ticks_per_s;
    next if $silent_s < $max_silence_s && $circle_s < $max_processor_s;
    open my $out, '>>', $log or die "$log: $!\n";
    print $out $silent_s >= $max_silence_s
        ? "# silent for $max_silence_s s: no output, and no processor time\n"
        : "# no output within $max_processor_s s of processor time\n";
    end_all('TERM');
    sleep 1;
    end_all('KILL');
    waitpid $pid, 0;
    $code = $silent_s >= $max_silence_s ? 124 : 125;
}
exit $code;
