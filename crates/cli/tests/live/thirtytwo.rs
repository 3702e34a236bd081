//! A 32-bit program: its memory is ordinary, its code is unknown to the decoder.

use std::path::Path;
use std::process::{Command, Stdio};

use hugepilot_reports::status::StatusReport;
use hugepilot_reports::tune::{NoVerdict, TuneWarning};
use hugepilot_testkit::{Victim, need, requires};
use hugepilot_units::Bytes;

use crate::tool::{hugepilot, tune};
use crate::workload::SOON;

const FLAGS: [&str; 7] =
    ["-m32", "-static", "-nostdlib", "-ffreestanding", "-fno-pie", "-no-pie", "-O1"];

/// Compiles the program; an error if the compiler has no 32-bit target or the kernel cannot run it.
fn compile(program: &Path) -> Result<(), String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../testkit/victims/thirtytwo.c");
    let output = Command::new("cc").args(FLAGS).arg("-o").arg(program).arg(source).output();
    let output = output.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("no 32-bit code: {}", String::from_utf8_lossy(&output.stderr)));
    }
    // With empty input it ends at once.
    let ran = Command::new(program).stdin(Stdio::null()).stdout(Stdio::null()).status();
    match ran {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("a 32-bit program does not run: {status}")),
        Err(error) => Err(format!("a 32-bit program does not run: {error}")),
    }
}

#[test]
fn a_32_bit_program_has_memory_but_no_verdict() {
    requires!(need::live());
    requires!(need::program("cc"));
    requires!(need::cap_perfmon());
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("thirtytwo");
    requires!(compile(&program));
    let mut victim = Victim::spawn(Command::new(&program));
    let ready = victim.ready(SOON);

    let status = hugepilot(["status", "-p", &victim.pid().to_string(), "--json"]);
    let report: StatusReport = status.exits(0).json();
    let memory =
        report.mappings.iter().find(|mapping| mapping.range.contains(ready.memory.start)).unwrap();
    assert!(memory.sizes.resident_bytes >= Bytes::mib(64), "{memory:?}");

    let done = tune(victim.pid(), "--budget 100% --observe 1s");
    let report = done.exits(3).says(&["no verdict", "32-bit code", "help:"]).report();
    assert!(report.sampler.samples > 100, "{done:?}");
    assert!(report.sampler.none_ratio > Some(0.95), "{done:?}");
    assert!(report.sampler.undecoded_ratio > Some(0.95), "{done:?}");
    assert!(matches!(report.no_verdict, Some(NoVerdict::Code32Bit { .. })), "{done:?}");
    assert_eq!(report.acts.attempted_regions, 0);
    assert!(
        report.warnings.iter().any(|warning| matches!(warning, TuneWarning::FewAddresses { .. })),
        "{done:?}"
    );
    assert!(victim.finish(SOON).success());
}
