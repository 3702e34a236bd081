//! CPU of a simulation.

use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use clap::Args;
use hugepilot_events::Design;
use hugepilot_kernel::proc::printable;
use hugepilot_kernel::{Root, cpu, file};
use hugepilot_sim::Preset;
use hugepilot_trace::simulate::CpuSetup;
use hugepilot_units::Bytes;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::note;

/// Largest preset file.
const MAX_FILE: Bytes = Bytes::mib(1);
/// Preset of the published simulations.
const DEFAULT: &str = "haswell";
const LIST: &str = "list them: hugepilot sim presets";
const HEADING: &str = "CPU";

#[derive(Args)]
pub(super) struct CpuArgs {
    /// TLBs: a preset that `sim presets` lists, or a file as `sim presets NAME` prints one
    /// [default: that of this machine]
    #[arg(help_heading = HEADING, long, value_name = "NAME|FILE")]
    preset: Option<String>,
    /// Let each TLB entry map four adjacent base pages, as AMD's do where memory permits
    #[arg(help_heading = HEADING, long)]
    coalescing: bool,
    /// Count the walks of a virtual machine: the host walks its own table for each reference
    #[arg(help_heading = HEADING, long)]
    nested: bool,
}

impl CpuArgs {
    pub(super) fn setup(&self) -> Result<CpuSetup, Failure> {
        let (coalescing, nested) = (self.coalescing, self.nested);
        let name = self.preset.as_deref().unwrap_or_else(|| {
            let own = cpu::read(&Root::live()).ok().and_then(|cpu| Design::of(&cpu));
            own.and_then(Design::preset).unwrap_or_else(|| {
                note(&format!("note: no preset for the CPU of this machine: simulating {DEFAULT}"));
                DEFAULT
            })
        });
        Ok(CpuSetup { preset: preset(name)?, name: name.to_owned(), coalescing, nested })
    }
}

/// Reads a built-in preset, or a file.
pub(super) fn preset(name: &str) -> Result<Preset, Failure> {
    if let Some(preset) = Preset::built_in(name) {
        return Ok(preset);
    }
    let is_file = name.contains('/') || Path::new(name).extension().is_some();
    if !is_file {
        let begin = name.split('-').next().unwrap_or(name);
        let near = Preset::names().find(|known| known.starts_with(begin));
        let near = near.map(|near| format!("use a similar name: {near}"));
        let failure = Failure::new(format!("unknown preset {name:?}"), Exit::Error);
        return Err(failure.with_help(near.into_iter().chain([LIST.to_owned()])));
    }
    let failed = |cause: &dyn fmt::Display| {
        let shown = printable(name.as_bytes());
        let failure = Failure::new(format!("cannot use preset {shown}"), Exit::Error);
        failure.because(printable(cause.to_string().as_bytes()))
    };
    let compare = || ["compare it with a built-in one: hugepilot sim presets haswell".to_owned()];
    let bytes = file::read(name, MAX_FILE).map_err(|error| match error.kind() {
        ErrorKind::NotFound => failed(&error).with_help([LIST.to_owned()]),
        ErrorKind::FileTooLarge => failed(&error).with_help(compare()),
        _ => failed(&error),
    })?;
    let text = String::from_utf8(bytes).map_err(|error| failed(&error).with_help(compare()))?;
    Preset::parse(&text).map_err(|error| failed(&error).with_help(compare()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_of_another_user_controls_no_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a\u{1b}[31m.toml").display().to_string();
        let refused = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            let error = preset(&path).unwrap_err().to_string();
            assert!(
                !error.contains(char::is_control) && error.contains("[31m.toml: "),
                "{error:?}"
            );
            error
        };
        let hostile = Preset::text("haswell").unwrap().replace("levels", "\"\\u001b[2J\\n\"");
        let error = refused(hostile.as_bytes());
        assert!(error.contains("unknown field `\\u{1b}[2J"), "{error}");
        assert!(refused(b"a = \xff").contains("invalid utf-8 sequence"));
        // The limit is above the file, and below it.
        let text = Preset::text("haswell").unwrap().as_bytes();
        let padded = [text, &vec![b'\n'; (1 << 20) - text.len()]].concat();
        std::fs::write(&path, &padded).unwrap();
        assert_eq!(preset(&path).unwrap().name, "haswell");
        assert!(refused(&[&padded[..], b"\n"].concat()).ends_with("larger than 1MiB"));
        // Each has help.
        let failure = |path: &str| format!("{:?}", preset(path).unwrap_err());
        assert!(failure(&path).contains("hugepilot sim presets haswell"), "{}", failure(&path));
        let missing = folder.path().join("none.toml").display().to_string();
        assert!(failure(&missing).contains(LIST), "{}", failure(&missing));
    }
}
