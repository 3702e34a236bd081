//! `hugepilot sim presets`.

use clap::Args;
use hugepilot_reports::presets_text;
use hugepilot_reports::sim::PresetFacts;
use hugepilot_sim::{Preset, Tlb};

use super::cpu::preset;
use crate::exit::Exit;
use crate::output::{print, width};

/// List the CPUs whose TLBs can be simulated, or print one
#[derive(Args)]
#[command(after_help = "\
Examples:
  hugepilot sim presets                       names and entries
  hugepilot sim presets haswell > my.toml     a file to change
  hugepilot sim tlb --preset my.toml -- ./solve

Exit status: 0 printed, 2 unknown preset")]
pub(crate) struct PresetsArgs {
    /// Preset to print as TOML
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(super) fn run(args: &PresetsArgs) -> anyhow::Result<Exit> {
    let text = match &args.name {
        Some(name) => {
            preset(name)?;
            Preset::text(name).unwrap_or_default().to_owned()
        }
        None => {
            let all = Preset::names().filter_map(Preset::built_in);
            presets_text(&all.map(|preset| facts(&preset)).collect::<Vec<_>>(), width())
        }
    };
    print(&text)?;
    Ok(Exit::Yes)
}

fn facts(preset: &Preset) -> PresetFacts {
    PresetFacts {
        name: preset.name.clone(),
        cpu: preset.cpu.clone(),
        l1: entries(&preset.l1),
        l2: entries(&preset.l2),
        assumed: preset.assumed.len(),
    }
}

/// Entries of TLBs, each with its page sizes: `64 4k, 32 2m`.
fn entries(tlbs: &[Tlb]) -> String {
    let one = |tlb: &Tlb| {
        let sizes: Vec<&str> = tlb.holds.iter().map(|class| class.name()).collect();
        format!("{} {}", tlb.entries, sizes.join("+"))
    };
    tlbs.iter().map(one).collect::<Vec<_>>().join(", ")
}
