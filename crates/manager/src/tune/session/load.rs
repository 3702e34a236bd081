//! Load of the machine beside the targets, on both sides of the promotions.

use hugepilot_kernel::Root;
use hugepilot_profiler::LoadReader;
use hugepilot_record::tune::judge_load;

use super::Session;
use super::target::SessionTarget;

impl Session<'_> {
    /// Starts reading the load of the machine beside the targets, if the gain is measured within
    /// one run.
    pub(super) fn start_load(&mut self) {
        if self.options.dry_run || self.options.interleaved {
            return;
        }
        let targets = self.targets.iter().filter(|target| !target.is_excluded());
        let targets = targets.map(|target| target.process.clone()).collect();
        self.engine.world.load = Some(LoadReader::new(&Root::live(), targets, self.now()));
    }

    /// Adds the load of both sides of the promotions, if a gain was measured.
    pub(super) fn add_load(&self, target: &mut SessionTarget) {
        let own = target.fold.acts();
        let (first_act, last_act) = target.program_acts.unwrap_or((own.first, own.last));
        let report = &mut target.report;
        let is_measured = report.baseline.is_some() && report.tuned.is_some();
        let Some((first_act, last_act)) = first_act.zip(last_act).filter(|_| is_measured) else {
            return;
        };
        let load = self.engine.world.load.as_ref();
        let Some(readings) = load.map(LoadReader::readings) else { return };
        report.load = Some(judge_load(readings, first_act, last_act));
    }
}
