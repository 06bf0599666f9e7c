#!/usr/bin/env python3
"""page.py BUILD: pages of `tandem report` in a headless Chromium, driven by chromedriver. Prints TAP.

No message on the console, no request but for the page itself, the keyboard reaches every control, hostile names
stay text, and a trace of 100,000 tasks opens within two seconds. Screenshots lie in BUILD/screenshots.
"""
import base64
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

PORT = 9517
BUILD = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build").resolve()
HERE = pathlib.Path(__file__).resolve().parent
SHOTS = BUILD / "screenshots"
count = failed = 0


def report(name, good, why=""):
    global count, failed
    count += 1
    failed += not good
    print(("ok" if good else "not ok") + f" {count} - {name}", flush=True)
    if why and not good:
        print(f"# {why}")


def call(path, body=None, method=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]


def open_browser(width, height, dark):
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
               f"--window-size={width},{height}"]
    if dark:
        options.append("--blink-settings=preferredColorScheme=0")
    wanted = {"goog:chromeOptions": {"args": options},
              "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
    return call("/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]


def run(session, script):
    return call(f"/session/{session}/execute/sync", {"script": script, "args": []})


def visit(session, page):
    call(f"/session/{session}/url", {"url": page.as_uri()})
    console = call(f"/session/{session}/se/log", {"type": "browser"})
    performance = call(f"/session/{session}/se/log", {"type": "performance"})
    events = [json.loads(e["message"])["message"] for e in performance]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return console, [u for u in asked if u != page.as_uri() and not u.startswith("data:")]


def tab_through(session):
    """How many of the elements that can have the focus the Tab key reaches."""
    wanted = run(session, "return [...document.querySelectorAll('a[href],button,summary,[tabindex=\"0\"]')]"
                          ".filter(e => e.checkVisibility()).map((e, k) => e.dataset.k = k).length")
    reached = set()
    for _ in range(wanted + 5):
        keys = [{"type": "keyDown", "value": "\ue004"}, {"type": "keyUp", "value": "\ue004"}]
        call(f"/session/{session}/actions", {"actions": [{"type": "key", "id": "k", "actions": keys}]})
        reached.add(run(session, "return document.activeElement.dataset.k ?? null"))
    return wanted, len(reached - {None})


def make_pages(folder):
    """A page of a plan and its replay, one with hostile names, one of a large trace."""
    tandem = BUILD / "tandem"
    subprocess.run(f"gunzip -c {HERE.parent}/cli/fixtures/resnet50.sqlite.gz >cards.db && "
                   f"{tandem} allocate --db cards.db --model resnet50 --batch 32 --predict -q --report plan.html "
                   "--cluster '8*v100@8 + 8*t4@8 net=100Gbit/s,5us' >out", shell=True, check=True, cwd=folder)
    hostile = {"schema": "tandem.replay/1", "model": "<script>document.title='bad'</script>\"'", "plan": "\u202eevil",
               "cluster": "</style><img src=x onerror=\"document.title='bad'\">", "step_ns": 100,
               "slowest": "x" * 10000, "made": {"command": "tandem '<script>document.title=\"bad\"</script>'",
                                                "host": "<img src=x>", "version": "0", "seed": 1},
               "devices": [{"name": "\u05e9\u05dc\u05d5\u05dd", "busy_ns": 50, "wait_ns": None}]}
    (folder / "hostile.json").write_text(json.dumps(hostile))
    events = [{"ph": "X", "name": f"layer{k % 977}", "pid": k % 4, "tid": 0, "ts": k // 4 * 10, "dur": 9,
               "args": {"kind": "forward", "task": k}} for k in range(100000)]
    trace = {"otherData": {"title": "p", "model": "m"}, "traceEvents": events}
    (folder / "large.json").write_text(json.dumps(trace))
    cost = {"device": "cpu:x", "co_runner": "", "operator": "linear m=<b>", "precision": "int8", "pass": "forward",
            "operand": "s8", "result": "f32", "low_ns": 90, "high_ns": 110, "n": 30}
    hosts = [{"cpu": "a CPU", "n_cpu": 2, "libraries": "a library", "n_thread": 1, "name_hash": "00ff", "costs": 9,
              "from_time_ns": 0, "to_time_ns": 10 ** 18}]
    devices = [{"name": "cpu:x", "co_runner": "", "costs": 9, "repetitions": 270, "disturbed": 4,
                "compute_spread": 0.03, "memory_spread": None, "interval_share": 0.02}]
    estimated = [{"operator": f"fc{k}", "precision": "int8", "sensitivity": k, "sensitivity_low": k / 2,
               "sensitivity_high": 2 * k} for k in range(1, 9)]
    (folder / "store.json").write_text(json.dumps({
        "schema": "tandem.store/1", "hosts": hosts, "devices": devices,
        "costs": [cost | {"median_ns": 1000 - k} for k in range(300)],
        "runs": [{"time_ns": 10 ** 18, "model": "m", "plan": "p", "cluster": "c", "steps": 5, "measured_ns": 9}]}))
    (folder / "estimated.json").write_text(json.dumps({
        "schema": "tandem.sensitivity/1", "model": "m", "device": "cpu:x", "steps": 40, "operators": estimated}))
    subprocess.run([tandem, "report", "store.json", "estimated.json", "-o", "store.html"], check=True, cwd=folder,
                   stdout=subprocess.DEVNULL)
    for name in ("hostile", "large"):
        subprocess.run([tandem, "report", f"{name}.json", "-o", f"{name}.html"], check=True, cwd=folder,
                       stdout=subprocess.DEVNULL)


def make_demo(folder):
    """The page of a demo of this machine; whether it can run here."""
    tandem = BUILD / "tandem"
    ready = subprocess.run([tandem, "doctor", "--json"], capture_output=True, text=True, cwd=folder)
    if ready.returncode or not json.loads(ready.stdout)["ready"]:
        print("SKIP: the page of a demo: `tandem doctor` says what is missing here", flush=True)
        return False
    subprocess.run([tandem, "demo", "-q", "--model", "vit_tiny:width=64,depth=2,heads=2", "--steps", "24",
                    "--report", "demo.html"], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    page = (folder / "demo.html").read_text()
    parts = ("Verdict", "Cluster", "Timeline", "Precision map", "Trade-off", "Memory over the step",
             "Sensitivity", "Provenance")
    absent = [part for part in parts if f"<h2>{part}</h2>" not in page]
    report("demo: every part that it makes something for", not absent, ", ".join(absent))
    return True


def check_pages(folder, names):
    for look, width, dark in (("light", 1200, False), ("dark", 1200, True), ("phone", 390, False)):
        session = open_browser(width, 900, dark)
        for name in names:
            console, asked = visit(session, folder / f"{name}.html")
            report(f"{name}, {look}: no message on the console", not console, str(console)[:300])
            report(f"{name}, {look}: no request", not asked, str(asked)[:300])
            if name == "store":
                run(session, "document.querySelectorAll('details').forEach(d => d.open = true)")
            shot = call(f"/session/{session}/screenshot")
            (SHOTS / f"{name}-{look}.png").write_bytes(base64.b64decode(shot))
        if look == "light":
            took = run(session, "const t = performance.getEntriesByType('navigation')[0]; return t.loadEventEnd")
            report(f"a trace of 100,000 tasks opens in {took:.0f} ms, of 2000", took <= 2000)
            visit(session, folder / "hostile.html")
            title = run(session, "return document.title")
            report("hostile names are text", title != "bad" and not run(session, "return document.images.length"))
        visit(session, folder / "plan.html")
        overflow = run(session, "const e = document.documentElement; return e.scrollWidth - e.clientWidth")
        report(f"{look}: nothing is wider than the page", overflow <= 0, f"by {overflow} px")
        if look == "light":
            wanted, reached = tab_through(session)
            report(f"the keyboard reaches all {wanted} controls", wanted > 10 and reached == wanted, f"{reached}")
        call(f"/session/{session}", method="DELETE")


def main():
    for program, package in (("chromium", "chromium"), ("chromedriver", "chromium-driver")):
        if not shutil.which(program):
            print(f"SKIP: the page in a browser: {program} is not installed; apt-get install {package}")
            return 0
    SHOTS.mkdir(exist_ok=True)
    driver = subprocess.Popen(["chromedriver", f"--port={PORT}"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            try:
                call("/status")
                break
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            make_pages(folder)
            check_pages(folder, ["demo"] * make_demo(folder) + ["plan", "store", "hostile", "large"])
    finally:
        driver.terminate()
        driver.wait()
    print(f"1..{count}")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main())
