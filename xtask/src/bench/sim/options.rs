//! Arguments of `cargo xtask bench sim`.

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};

use super::super::arguments::{choices, number};

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

/// Vertex order of the replayed graph.
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

/// Policies whose promotions are replayed.
const POLICIES: [&str; 3] = ["pcc", "hawkeye", "heat"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Tables, in the order of [`Part::ALL`].
    pub(super) parts: Vec<Part>,
    /// Vertices of the Kronecker graph, as a power of two.
    pub(super) scale: u32,
    pub(super) kernels: Vec<Kernel>,
    /// Most accesses of a simulated source.
    pub(super) accesses: u64,
    /// CPU that is simulated beside live runs.
    pub(super) preset: String,
    /// Vertex order of replayed graphs.
    pub(super) order: Order,
    /// Policy whose promotions are replayed.
    pub(super) policy: String,
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
            preset: "zen5".to_owned(),
            order: Order::Original,
            policy: POLICIES[0].to_owned(),
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
                "--preset" => options.preset = (*value()?).to_owned(),
                "--pairs" => options.pairs = number(word, value()?)?,
                "--order" => {
                    let named = choices(value()?, "order", &Order::ALL, Order::name)?;
                    let [order] = named[..] else { bail!("--order takes one order") };
                    options.order = order;
                }
                "--policy" => {
                    let policy = *value()?;
                    let known = POLICIES.contains(&policy);
                    ensure!(known, "no such policy {policy}; policies: {}", POLICIES.join(", "));
                    options.policy = policy.to_owned();
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!((options.order, &*options.policy), (Order::Dbg, "heat"));
        for wrong in [&["--order", "dbg,original"][..], &["--policy", "linux"]] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
        for wrong in [&["fast"][..], &["--pairs", "0"], &["--scale"], &["--kernels", "tc"]] {
            assert!(Options::read(wrong).is_err(), "{wrong:?}");
        }
    }
}
