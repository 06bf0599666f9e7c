# options_read.awk: of options.def and the sources of cli/ and the programs, one line "COMMAND OPTION_KEY MEMBERS" for each option that a command takes and none of the
# functions that it may call reads. A function is what begins at the left edge, up to its closing brace, and
# calls what it names: its own file's first, else that of another. A table counts as a function, for those
# that it names.

# A line without comments, and with nothing in its strings.
function strip(line,   at, code) {
    gsub(/\\["'\\]/, "", line)
    gsub(/"[^"]*"/, "\"\"", line)
    gsub(/'[^']*'/, "0", line)
    for (code = ""; line != "";) {
        at = index(line, in_comment ? "*/" : "/*")
        if (!in_comment) code = code (at ? substr(line, 1, at - 1) : line)
        if (!at) break
        line = substr(line, at + 2)
        in_comment = !in_comment
    }
    return code
}
function count(text, pattern) { return gsub(pattern, "", text) }

# What a top-level item is called: a function before its first parenthesis, data before its brackets or sign.
function name_of(text) {
    sub(/__attribute__.*/, "", text)
    if (text ~ /^[^={]*\(/) sub(/ *\(.*/, "", text)
    else sub(/ *(\[|=).*/, "", text)
    sub(/.*[^A-Za-z0-9_]/, "", text)
    return text
}

function end_item(   name) {
    name = name_of(item)
    if (name != "" && item ~ /[{]/) {
        body[file, name] = item
        if (item !~ /^static /) owner[name] = file
        if (item ~ /^static const int of_every_command/) of_every = item
        if (name ~ /_own_option$/) learn_own(item)
    }
    item = ""
    depth = 0
}

FILENAME ~ /options\.def$/ { definitions = definitions strip($0); next }
FNR == 1 { file = FILENAME; sub(/.*\//, "", file); item = ""; depth = 0; in_comment = 0 }
/^#/ { next }
{
    line = strip($0)
    if (item == "" && line !~ /^[A-Za-z_]/) next
    item = item " " line
    if (item ~ /^ /) item = substr(item, 2)
    depth += count(line, "[{]") - count(line, "[}]")
    if (depth == 0 && line ~ /[;}] *$/) end_item()
}

# Which member of cli_options each key of options.def writes.
function learn(text,   parts, n, k, key) {
    n = split(text, parts, /OPTION\(/)
    for (k = 2; k <= n; k++) {
        match(parts[k], /^[A-Z_]+/)
        key = "OPTION_" substr(parts[k], 1, RLENGTH)
        match(parts[k], /[A-Z]+\([a-z_.]+/)
        members[key] = substr(parts[k], RSTART, RLENGTH)
        sub(/.*\(/, " ", members[key])
    }
}

# The same of the options that one program alone has.
function learn_own(text,   key) {
    while (match(text, /OPTION_[A-Z_]+ - OPTION_AFTER_LAST/)) {
        key = substr(text, RSTART, RLENGTH - length(" - OPTION_AFTER_LAST"))
        text = substr(text, RSTART + RLENGTH)
        match(text, /_own\.[a-z_]+/)
        members[key] = " " substr(text, RSTART + 5, RLENGTH - 5)
    }
}

function look(text,   word, rest, at) {
    rest = text
    while (match(rest, /(options|given|_own|[^A-Za-z0-9_]o)(->|\.)[a-z_]+(\.[a-z_]+)?/)) {
        word = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if (rest ~ /^ = /) continue # written, not read
        sub(/.*(options|o|given|_own)(->|\.)/, "", word)
        read_member[word] = 1
        sub(/\..*/, "", word)
        read_whole[word] = 1
    }
}

function reach(where, name,   text, rest, word) {
    if (seen[where, name]++) return
    text = body[where, name]
    look(text)
    rest = text
    while (match(rest, /[A-Za-z_][A-Za-z0-9_]*/)) {
        word = substr(rest, RSTART, RLENGTH)
        rest = substr(rest, RSTART + RLENGTH)
        if ((where, word) in body) stack[++top] = where SUBSEP word
        else if (word in owner) stack[++top] = owner[word] SUBSEP word
    }
}

function is_read(key,   parts, n, k) {
    n = split(members[key], parts, " ")
    for (k = 1; k <= n; k++) {
        if (parts[k] in read_member) return 1
        if (parts[k] !~ /\./ && parts[k] in read_whole) return 1
        sub(/\..*/, "", parts[k])
        if (parts[k] in read_member) return 1 # all of it, at once
    }
    return 0
}

# What `start` (FILE SUBSEP NAME, …) may call reads the options in `text`?
function check(who, start, text,   parts, n, k, pair, i) {
    split("", seen); split("", read_member); split("", read_whole)
    top = 0
    n = split(start, parts, " ")
    for (k = 1; k <= n; k++) stack[++top] = parts[k]
    while (top > 0) {
        pair = stack[top--]
        i = index(pair, SUBSEP)
        reach(substr(pair, 1, i - 1), substr(pair, i + 1))
    }
    while (match(text, /OPTION_[A-Z_]+/)) {
        pair = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (pair == "OPTION_END") continue
        n_checked++
        if (!is_read(pair)) print who, pair, members[pair]
    }
}

END {
    learn(definitions)
    for (pair in body) {
        split(pair, parts, SUBSEP)
        if (body[pair] ~ /^const cli_command command_/)
            # what every command line goes through reads for each command
            check(substr(parts[2], 9), parts[1] SUBSEP "run_" substr(parts[2], 9) " " owner["cli_options_parse"] SUBSEP \
                "join_model", body[parts[1], "options"] " " of_every)
        else if (parts[1] == "bench.c" && parts[2] ~ /^of_/) {
            kind = "bench_" substr(parts[2], 4)
            check(kind, owner[kind] SUBSEP kind " bench.c" SUBSEP "bench_print", body[pair])
        } else if (parts[2] == "allowed") # a question of a command
            check(parts[1], parts[1] SUBSEP "allocate_verify", body[pair])
    }
    print "checked", n_checked + 0
}
