//! Arguments of `cargo xtask bench sim`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use hugepilot_events::Design;

use super::super::arguments::{choices, number};
use super::super::records::processor;

/// Table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Speed,
    Peers,
    Reuse,
    Utility,
    Sizes,
    Threads,
    Processes,
    Replay,
    Agree,
    Programs,
}

impl Part {
    pub(super) const ALL: [Self; 10] = [
        Self::Speed,
        Self::Peers,
        Self::Reuse,
        Self::Utility,
        Self::Sizes,
        Self::Threads,
        Self::Processes,
        Self::Replay,
        Self::Agree,
        Self::Programs,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Speed => "speed",
            Self::Peers => "peers",
            Self::Reuse => "reuse",
            Self::Utility => "utility",
            Self::Sizes => "sizes",
            Self::Threads => "threads",
            Self::Processes => "processes",
            Self::Replay => "replay",
            Self::Agree => "agree",
            Self::Programs => "programs",
        }
    }
}

/// Graph kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    Bfs,
    Sssp,
    Pr,
}

impl Kernel {
    const ALL: [Self; 3] = [Self::Bfs, Self::Sssp, Self::Pr];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bfs => "bfs",
            Self::Sssp => "sssp",
            Self::Pr => "pr",
        }
    }
}

/// Vertex order of a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Original,
    Dbg,
}

impl Order {
    const ALL: [Self; 2] = [Self::Original, Self::Dbg];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Original => "original",
            Self::Dbg => "dbg",
        }
    }
}

const POLICIES: [&str; 3] = ["pcc", "hawkeye", "heat"];
/// TLBs of the paper's machine, and of a current one.
const PRESETS: [&str; 2] = ["haswell", "zen5"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Tables, in the order of [`Part::ALL`].
    pub(super) parts: Vec<Part>,
    /// Vertices of the Kronecker graph, as a power of two.
    pub(super) scale: u32,
    pub(super) kernels: Vec<Kernel>,
    /// Most accesses of a simulated source.
    pub(super) accesses: u64,
    presets: Vec<String>,
    orders: Vec<Order>,
    policies: Vec<&'static str>,
    /// Runs of each measured variant.
    pub(super) pairs: usize,
    /// File to which each record is appended.
    pub(super) output: Option<PathBuf>,
    /// File of earlier records to report on, without new ones.
    pub(super) report: Option<PathBuf>,
}

impl Options {
    pub(super) fn read(args: &[&str]) -> Result<Self> {
        let mut options = Self {
            parts: Vec::new(),
            scale: 20,
            kernels: Kernel::ALL.to_vec(),
            accesses: 100_000_000,
            presets: Vec::new(),
            orders: Vec::new(),
            policies: Vec::new(),
            pairs: 5,
            output: None,
            report: None,
        };
        let mut words = args.iter();
        while let Some(&word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} takes a value"));
            match word {
                "--scale" => options.scale = number(word, value()?)?,
                "--accesses" => options.accesses = number(word, value()?)?,
                "--preset" => {
                    options.presets = value()?.split(',').map(str::to_owned).collect();
                }
                "--pairs" => options.pairs = number(word, value()?)?,
                "--order" => {
                    options.orders = choices(value()?, "order", &Order::ALL, Order::name)?;
                }
                "--policy" => {
                    options.policies = choices(value()?, "policy", &POLICIES, |name| name)?;
                }
                "--output" => options.output = Some(value()?.into()),
                "--report" => options.report = Some(value()?.into()),
                "--kernels" => {
                    options.kernels = choices(value()?, "kernel", &Kernel::ALL, Kernel::name)?;
                }
                _ if word.starts_with('-') => bail!("no such option {word}"),
                _ => options.parts.extend(choices(word, "part", &Part::ALL, Part::name)?),
            }
        }
        ensure!(options.pairs > 0, "--pairs takes at least 1");
        ensure!((8..=30).contains(&options.scale), "--scale takes 8 to 30");
        ensure!(options.accesses >= 1_000_000, "--accesses takes at least 1000000");
        let named = options.parts;
        let is_wanted = |part: &Part| named.is_empty() || named.contains(part);
        options.parts = Part::ALL.into_iter().filter(is_wanted).collect();
        Ok(options)
    }

    /// TLBs of the simulated figures.
    pub(super) fn presets(&self) -> Vec<&str> {
        let named: Vec<&str> = self.presets.iter().map(String::as_str).collect();
        if named.is_empty() { PRESETS.to_vec() } else { named }
    }

    /// TLBs beside live runs: the first named, or those of this CPU.
    pub(super) fn preset(&self) -> &str {
        let own = || own_preset().unwrap_or(PRESETS[1]);
        self.presets.first().map_or_else(own, String::as_str)
    }

    /// Whether no preset is named, and none has the TLBs of this CPU.
    pub(super) fn lacks_own_preset(&self) -> bool {
        self.presets.is_empty() && own_preset().is_none()
    }

    /// Vertex orders of the simulated figures.
    pub(super) fn orders(&self) -> &[Order] {
        if self.orders.is_empty() { &Order::ALL } else { &self.orders }
    }

    /// Vertex order of replayed graphs: the first named.
    pub(super) fn order(&self) -> Order {
        self.orders()[0]
    }

    /// Policies of the simulated figures.
    pub(super) fn policies(&self) -> &[&'static str] {
        if self.policies.is_empty() { &POLICIES } else { &self.policies }
    }

    /// Policy whose promotions are replayed: the first named.
    pub(super) fn policy(&self) -> &'static str {
        self.policies()[0]
    }
}

/// Returns the preset of this CPU.
fn own_preset() -> Option<&'static str> {
    Design::of(&processor(&std::fs::read_to_string("/proc/cpuinfo").ok()?)?)
        .and_then(Design::preset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preset_is_that_of_the_cpu() {
        let preset = |vendor: &str, family, model| {
            let text = format!("vendor_id : {vendor}\ncpu family\t: {family}\nmodel : {model}\n");
            processor(&text).and_then(|cpu| Design::of(&cpu)?.preset())
        };
        assert_eq!(preset("AuthenticAMD", 25, 17), Some("zen4"));
        assert_eq!(preset("AuthenticAMD", 26, 2), Some("zen5"));
        assert_eq!(preset("GenuineIntel", 6, 63), Some("haswell"));
        assert_eq!(preset("GenuineIntel", 6, 173), None);
        assert_eq!(processor("flags : fpu"), None);
    }

    #[test]
    fn parts_come_in_the_order_of_the_report() {
        let args = ["replay", "speed,sizes", "--scale", "14", "--kernels", "pr,bfs"];
        let options = Options::read(&args).unwrap();
        assert_eq!(options.parts, [Part::Speed, Part::Sizes, Part::Replay]);
        assert_eq!(options.kernels, [Kernel::Pr, Kernel::Bfs]);
        assert_eq!(options.scale, 14);
        assert_eq!(Options::read(&[]).unwrap().parts, Part::ALL);
        let args = ["replay", "--order", "dbg", "--policy", "heat", "--preset", "haswell"];
        let options = Options::read(&args).unwrap();
        let first = (options.order(), options.preset(), options.policy());
        assert_eq!(first, (Order::Dbg, "haswell", "heat"));
        for wrong in [&["--order", "rcm"][..], &["--policy", "linux"]] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
        for wrong in [&["fast"][..], &["--pairs", "0"], &["--scale"], &["--kernels", "tc"]] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
