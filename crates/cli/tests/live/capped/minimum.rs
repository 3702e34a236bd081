//! Arguments of short runs, by command.

/// Returns arguments for a short run of the command. A command without an entry fails the test.
pub(super) fn minimum(
    text: &str,
    argument: &str,
    [pid, graph, out, journal, recording, runs]: &[String; 6],
) -> Vec<(&'static str, String)> {
    let own =
        |pairs: &[(&'static str, &str)]| pairs.iter().map(|&(k, v)| (k, v.to_owned())).collect();
    match (text, argument) {
        ("daemon", "cgroup" | "journal" | "record") => own(&[("--dry-run", ""), ("--once", "")]),
        ("daemon", _) => own(&[("--print-config", "")]),
        ("debloat", "cgroup") => own(&[("--dry-run", ""), ("--observe", "1ms")]),
        ("debloat", _) => own(&[("--pid", pid), ("--dry-run", ""), ("--observe", "1ms")]),
        ("compare" | "run", _) => {
            let more = if text == "run" { ("--pages", "mimalloc") } else { ("--rounds", "1") };
            own(&[more, ("command", "/bin/true")])
        }
        ("graph info", _) => own(&[("graph", graph)]),
        ("graph run", _) => own(&[("kernel", "bfs"), ("graph", graph)]),
        ("graph reorder", _) => {
            own(&[("graph", graph), ("out", out), ("--force", ""), ("--reorder", "dbg")])
        }
        ("graph convert", _) => own(&[("graph", graph), ("out", out), ("--force", "")]),
        ("graph generate", _) => own(&[("graph", "uniform:4"), ("out", out), ("--force", "")]),
        ("pool set", _) => own(&[("size", "2MiB"), ("amount", "0")]),
        ("status", _) => own(&[("--pid", pid)]),
        ("top", "interval") => own(&[("--once", "")]),
        ("top", _) => own(&[("--once", ""), ("--interval", "200ms")]),
        ("lab collapse", _) => own(&[("--pid", pid)]),
        ("explain", "schedule") => own(&[("file", journal)]),
        ("explain", _) | ("tune", "undo") => Vec::new(),
        ("sim prefix", "command" | "files") => own(&[("--prefix", "[heap]")]),
        ("sim prefix", "schedule") => own(&[("command", "/bin/true"), ("--prefix", "[heap]")]),
        ("sim prefix", _) => {
            own(&[("--prefix", "[anon]"), ("--pattern", "random:1MiB"), ("--max-accesses", "1000")])
        }
        ("sim presets", _) | (_, "files") if text.starts_with("sim") => Vec::new(),
        ("record", argument) => record_minimum(argument, pid, out),
        ("report", "output") => own(&[("files", recording), ("--format", "json")]),
        ("report", _) => Vec::new(),
        ("trace", "command") => own(&[("--output", out), ("--force", "")]),
        ("trace", _) => own(&[("command", "/bin/true"), ("--force", "")]),
        (sim, "command") if sim.starts_with("sim ") => Vec::new(),
        (sim, "schedule") if sim.starts_with("sim ") => own(&[("command", "/bin/true")]),
        (sim, _) if sim.starts_with("sim ") => {
            own(&[("--pattern", "random:1MiB"), ("--max-accesses", "1000")])
        }
        ("tune", argument) => tune_minimum(argument, pid),
        ("completions" | "doctor" | "pool show" | "pool explain" | "schema", _) => Vec::new(),
        ("knobs prefetch show", _) => Vec::new(),
        ("knobs prefetch set", "setting") => own(&[("command", "/bin/true")]),
        ("knobs prefetch set", _) => own(&[("setting", "off")]),
        ("lab pchase", _) => own(&[("--size", "1MiB"), ("--rounds", "1"), ("--time", "1ms")]),
        ("lab stream" | "lab gups", _) => own(&[("--size", "1MiB")]),
        ("lab tlb-sweep", _) => own(&[("--size", "2MiB"), ("--pages", "base")]),
        ("lab report", "output") => own(&[("files", runs)]),
        (lab, argument) if lab.starts_with("lab ") => lab_minimum(lab, argument, out, journal),
        _ => panic!("`{text}` has no entry here for a short run"),
    }
}

/// Returns arguments for a short run of a condition, an experiment or a workload.
fn lab_minimum(
    text: &str,
    argument: &str,
    out: &str,
    journal: &str,
) -> Vec<(&'static str, String)> {
    let own =
        |pairs: &[(&'static str, &str)]| pairs.iter().map(|&(k, v)| (k, v.to_owned())).collect();
    match (text, argument) {
        ("lab run", "experiment") => Vec::new(),
        ("lab run", "output" | "data") => own(&[("experiment", "pcc-size")]),
        ("lab run", _) => own(&[("experiment", "none")]),
        ("lab report", _) => Vec::new(),
        ("lab merge", "files") => own(&[("--output", out)]),
        ("lab merge", _) => own(&[("files", journal)]),
        ("lab pressure", _) => own(&[("--leave", "1KiB")]),
        ("lab fragment", _) => own(&[("--level", "0%")]),
        ("lab page-cache" | "lab warm", _) => own(&[("--size", "64KiB"), ("command", "/bin/true")]),
        ("lab quiet", _) => own(&[("--seconds", "0.01"), ("command", "/bin/true")]),
        (lab, _) if lab.starts_with("lab workload") => own(&[("--seconds", "0.01")]),
        _ => panic!("`{text}` has no entry here for a short run"),
    }
}

/// Returns arguments for a short run of `record`.
fn record_minimum(argument: &str, pid: &str, out: &str) -> Vec<(&'static str, String)> {
    let more = match argument {
        "output" => vec![("command", "/bin/true")],
        "command" | "from_regex" | "phase_regex" => vec![("--output", out), ("command", "true")],
        "cgroup" | "name" | "pid" => vec![("--output", out), ("--duration", "1ms")],
        _ => vec![("--output", out), ("--pid", pid), ("--duration", "1ms")],
    };
    more.into_iter()
        .chain([("--force", "")])
        .map(|(name, value)| (name, value.to_owned()))
        .collect()
}

/// Returns arguments for a short run of `tune`.
fn tune_minimum(argument: &str, pid: &str) -> Vec<(&'static str, String)> {
    let dry = [("--calibration", "off"), ("--dry-run", "")];
    let short = [("--pid", pid), ("--observe", "1ms"), ("--for", "1ms")];
    let all = match argument {
        "schedule" => vec![("--pid", pid), ("--dry-run", "")],
        "command" => dry.to_vec(),
        "journal" | "record" => [&dry[..], &short].concat(),
        _ => [&dry[..], &short, &[("--progress-regex", "(.*)")]].concat(),
    };
    all.into_iter().map(|(name, value)| (name, value.to_owned())).collect()
}
