//! Runs of one mode in a comparison, and their summary.

use hugepilot_record::Mode;
use hugepilot_reports::compare::{Counts, DecidingTime, ModeReport, speedup};
use hugepilot_reports::run::{Effect, EffectCause, Run};

use crate::run::setup::Setup;

/// Mode of a comparison, with its runs in complete rounds.
pub(super) struct Contender {
    pub(super) setup: Setup,
    pub(super) runs: Vec<Run>,
    pub(super) effects: Vec<Effect>,
    pub(super) counts: Vec<Counts>,
    pub(super) stall_ratio: Option<f64>,
}

/// Summarises the runs of each contender, with its ratios to others in the same round.
pub(super) fn summary(contenders: &[Contender]) -> Vec<ModeReport> {
    let runs_of = |mode| {
        let other = contenders.iter().find(|other| other.setup.mode == mode)?;
        Some(&other.runs[..])
    };
    let summary_of = |contender: &Contender| {
        let over = |time, mode| speedup(time, runs_of(mode)?, &contender.runs);
        let mode = contender.setup.mode;
        let base = Some(Mode::Base).filter(|&base| base != mode);
        let plain = mode.without_huge_pages();
        ModeReport {
            speedup_over_base: base.and_then(|base| over(DecidingTime::Wall, base)),
            cpu_speedup_over_base: base.and_then(|base| over(DecidingTime::Cpu, base)),
            speedup_over_same_allocator: plain.and_then(|plain| over(DecidingTime::Wall, plain)),
            cpu_speedup_over_same_allocator: plain.and_then(|plain| over(DecidingTime::Cpu, plain)),
            ..contender.report()
        }
    };
    contenders.iter().map(summary_of).collect()
}

impl Contender {
    pub(super) const fn new(setup: Setup) -> Self {
        Self { setup, runs: Vec::new(), effects: Vec::new(), counts: Vec::new(), stall_ratio: None }
    }

    /// Summarises its runs.
    fn report(&self) -> ModeReport {
        let (effect, effective_runs) = common_effect(&self.effects);
        let mut report = ModeReport {
            effect,
            effective_runs,
            stall_ratio: self.stall_ratio,
            ..ModeReport::unavailable(self.setup.mode, EffectCause::NotMeasured)
        };
        report.measure(&self.runs.iter().collect::<Vec<_>>());
        report.count(&self.counts);
        report
    }
}

/// The last effect like that of most runs, and the number of runs with an effect.
fn common_effect(effects: &[Effect]) -> (Effect, u32) {
    let known: Vec<bool> = effects.iter().filter_map(|effect| effect.took_effect).collect();
    let took = known.iter().filter(|&&took| took).count();
    let took_effect = (!known.is_empty()).then_some(2 * took >= known.len());
    let effect = effects.iter().rfind(|effect| effect.took_effect == took_effect).cloned();
    let effect = effect.unwrap_or_else(|| Effect::new(took_effect, EffectCause::NotMeasured));
    (effect, u32::try_from(took).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_effect_is_that_of_most_runs() {
        let yes = Effect::new(Some(true), EffectCause::NoHugePages);
        let no = Effect::new(Some(false), EffectCause::LibcThpBug);
        let unknown = Effect::new(None, EffectCause::Unreadable);
        let table = [
            (vec![yes.clone(), no.clone(), unknown.clone()], &yes, 1),
            (vec![yes.clone(), no.clone(), no.clone()], &no, 1),
            (vec![unknown.clone()], &unknown, 0),
            (vec![], &Effect::new(None, EffectCause::NotMeasured), 0),
        ];
        for (effects, effect, effective_runs) in table {
            assert_eq!(common_effect(&effects), (effect.clone(), effective_runs), "{effects:?}");
        }
    }
}
