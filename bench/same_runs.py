"""What differs between the folders old/ and new/ (bench/same_runs.sh): `result NAME` of a run, or `files`."""
import glob
import json
import os
import sys

TIMES = {"step_ns", "step_p10_ns", "step_p90_ns", "samples_per_s", "wait_ns", "busy_ns", "undisturbed_ns",
         "resident_bytes", "steadiness", "start_ns", "measured_ns"}
MADE = {"made", "seconds", "schema", "version"}
RENAMED = dict(pair.split("=") for pair in os.environ.get("RENAMED", "").split())


def values(result, is_measured, path=""):
    """Path and value of every number and text, without what made it."""
    if isinstance(result, dict):
        for key, value in result.items():
            if key in MADE or is_measured and key in TIMES:
                continue
            yield from values(value, is_measured, path + "/" + RENAMED.get(key, key))
    elif isinstance(result, list) and result:
        for index, value in enumerate(result):
            yield from values(value, is_measured, "%s/%d" % (path, index))
    else:
        yield path, result


def load(build, name):
    """The result of a run and its messages; a result that is no JSON is one value."""
    text = open("%s/%s.json" % (build, name)).read()
    messages = open("%s/%s.err" % (build, name)).read()
    try:
        found = dict(values(json.loads(text), name[0] in "ts"))
    except json.JSONDecodeError:
        found = {"output": text}
    found["messages"] = messages
    return found


def compare_result(name):
    old, new = load("old", name), load("new", name)
    changed = ["%s: %r, then %r" % (key, old[key], new[key])
               for key in old if key in new and old[key] != new[key]]
    gone = [key for key in old if key not in new]
    added = [key for key in new if key not in old]
    words = changed[:4] + ["... (%d)" % len(changed)] * (len(changed) > 4)
    words += ["without " + key for key in gone[:4]] + ["new: " + key for key in added[:4]]
    verdict = "differs" if changed or gone else "equal"
    print("%-4s %-7s %5d values  %s" % (name, verdict, len(old), "; ".join(words)))


def read(path):
    data = open(path, "rb").read()
    if not path.endswith((".trace", ".plan")):
        return data
    return dict(values(json.loads(data), False))


def compare_files():
    for path in sorted(glob.glob("old/*")):
        other = "new/" + os.path.basename(path)
        if path.endswith((".json", ".err", ".db")):
            continue
        same = os.path.exists(other) and read(path) == read(other)
        print("%-20s %s" % (os.path.basename(path), "equal" if same else "differs"))


if sys.argv[1] == "files":
    compare_files()
else:
    compare_result(sys.argv[2])
