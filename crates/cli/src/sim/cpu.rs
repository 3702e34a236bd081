//! CPU of a simulation.

use std::fmt::Write as _;
use std::path::Path;

use clap::Args;
use hugepilot_kernel::file;
use hugepilot_sim::Preset;
use hugepilot_trace::simulate::CpuSetup;

use crate::exit::Exit;
use crate::failure::Failure;

/// Largest preset file.
const MAX_FILE: u64 = 1 << 20;
const HEADING: &str = "CPU";

#[derive(Args)]
pub(super) struct CpuArgs {
    /// TLBs: a preset that `sim presets` lists, or a file as `sim presets NAME` prints one
    #[arg(help_heading = HEADING, long, value_name = "NAME|FILE", default_value = "haswell")]
    preset: String,
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
        Ok(CpuSetup {
            preset: preset(&self.preset)?,
            name: self.preset.clone(),
            coalescing,
            nested,
        })
    }
}

/// Reads a built-in preset, or a file.
pub(super) fn preset(name: &str) -> Result<Preset, Failure> {
    if let Some(preset) = Preset::built_in(name) {
        return Ok(preset);
    }
    let is_file = name.contains('/') || Path::new(name).extension().is_some();
    if !is_file {
        let mut help = "list them: hugepilot sim presets".to_owned();
        let names =
            Preset::names().find(|known| known.starts_with(name.split('-').next().unwrap_or(name)));
        if let Some(near) = names {
            let _ = write!(help, "; perhaps {near}");
        }
        let failure = Failure::new(format!("unknown preset {name:?}"), Exit::Error);
        return Err(failure.with_help([help]));
    }
    let failed = || Failure::new(format!("cannot use preset {name}"), Exit::Error);
    let text = read(Path::new(name)).map_err(|error| failed().because(error.to_string()))?;
    Preset::parse(&text).map_err(|error| {
        let help = "compare it with a built-in one: hugepilot sim presets haswell";
        failed().because(error.to_string()).with_help([help.to_owned()])
    })
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    file::open(path)?.take(MAX_FILE).read_to_string(&mut text)?;
    Ok(text)
}
