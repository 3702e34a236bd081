//! Simulation of policies: one with its candidates, or several over a range of budgets.

mod name;

use hugepilot_policy::round::{Goal, Round};
use hugepilot_policy::tune::{HawkeyeRules, KhugepagedRules, PccRules, Policy, TuneGoal};
use hugepilot_record::PolicyName;
use hugepilot_reports::sim::{
    CostReport, POLICY_SCHEMA, PolicyRun, ProcessRun, SimPolicyReport, SimUtilityReport,
    UTILITY_SCHEMA, UtilityPoint,
};
use hugepilot_sim::{
    Batch, CandidateRules, CandidateTables, CostModel, Counts, Coverage, Footprint, Machine,
    MachineConfig, MemoryUse, PageClass, Places, Ranked, TunedAct, TunedConfig, TunedMachine, View,
    merge,
};
use hugepilot_units::{Amount, Bytes, Nanos, Share};

use super::facts::{self, CpuSetup};
use super::prefix::{self, Prefix};
use super::{Job, Simulated, Simulator};
use crate::TraceError;
pub use name::SimPolicy;

/// Simulated time of an interval: that of the paper's promotion interval.
const INTERVAL: Nanos = Nanos::seconds(30);
/// Time between two decisions of policies that act at the first touch, if no region is touched.
const AT_ONCE: Nanos = Nanos::millis(250);

/// Machine and rules of all policies.
#[derive(Clone, Debug)]
pub struct PolicySetup {
    /// CPU.
    pub cpu: CpuSetup,
    /// Candidate caches.
    pub candidates: CandidateRules,
    /// Rules of `pcc`. Its table is that of `candidates`.
    pub pcc: PccRules,
    /// Rules of `hawkeye`.
    pub hawkeye: HawkeyeRules,
    /// Mean of the access coverage, for `hawkeye`.
    pub coverage: Coverage,
    /// Rules of `khugepaged`.
    pub khugepaged: KhugepagedRules,
    /// Mappings of `prefix`, by name.
    pub prefix: Vec<String>,
    /// Accesses in thirty seconds of simulated time.
    pub interval: u64,
    /// Huge pages that the machine has; `None` for as many as wanted.
    pub frames: Option<u64>,
    /// Cost model.
    pub cost: CostModel,
    /// Whether `pcc` promotes regions of 1 GiB, too.
    pub giant: bool,
    /// Memory of which budgets are shares, as [`Job::used`] returns it; `None` for that in use at
    /// each decision.
    pub used: Option<Bytes>,
}

impl PolicySetup {
    fn amount(&self, budget: Share) -> Amount {
        self.used.map_or(Amount::Share(budget), |used| Amount::Bytes(budget.of(used)))
    }

    fn goal(&self, name: PolicyName, budget: Option<Share>) -> Option<TuneGoal> {
        let mut goal = TuneGoal {
            policy: Policy::of(name)?,
            budget: budget.map(|budget| self.amount(budget)),
            max_added: Some(Share::ALL),
            observe: INTERVAL,
            persistent: true,
            ..TuneGoal::default()
        };
        if !matches!(goal.policy, Policy::Heat) {
            // As the kernel and that of the paper: a region with one page in use may get a huge
            // page, whatever memory that adds.
            (goal.limits.min_resident, goal.max_added) = (Share::percent(0.0), None);
        }
        match &mut goal.policy {
            Policy::Pcc(rules) => {
                *rules = self.pcc.clone();
                // In the paper, a demoted region is a candidate as any other.
                goal.horizon = Nanos::ZERO;
            }
            Policy::Hawkeye(rules) => *rules = self.hawkeye,
            Policy::Khugepaged(rules) => {
                *rules = self.khugepaged;
                goal.observe = rules.scan_sleep;
            }
            Policy::Linux | Policy::All => {
                (goal.observe, goal.regions_per_round) = (AT_ONCE, usize::MAX);
            }
            Policy::Heat => goal.observe = TuneGoal::default().observe,
            _ => {}
        }
        Some(goal)
    }

    fn rate(&self) -> u64 {
        (self.interval / (INTERVAL.get() / 1_000_000_000)).max(1)
    }

    fn machine(&self, tables: CandidateTables) -> MachineConfig {
        MachineConfig { candidates: self.candidates, tables, ..self.cpu.machine() }
    }

    /// Returns the candidate caches that a policy reads.
    const fn tables(&self, policy: PolicyName) -> CandidateTables {
        match policy {
            PolicyName::Pcc if self.giant => CandidateTables::All,
            PolicyName::Pcc => CandidateTables::Huge,
            _ => CandidateTables::None,
        }
    }

    fn plain(&self, first_class: PageClass) -> Plain {
        Plain(Machine::new(MachineConfig { first_class, ..self.machine(CandidateTables::None) }))
    }

    fn tuned(&self, name: PolicyName, budget: Option<Share>) -> Option<TunedMachine> {
        Some(TunedMachine::new(TunedConfig {
            machine: self.machine(self.tables(name)),
            goal: self.goal(name, budget)?,
            rate: self.rate(),
            frames: self.frames,
            coverage: self.coverage,
            cost: self.cost,
            giant: self.giant && name == PolicyName::Pcc,
        }))
    }

    fn run<'a>(&self, policy: SimPolicy, budget: Option<Share>) -> Option<Subject<'a>> {
        let (name, prefix) = match policy {
            SimPolicy::Tune(name) => (name, None),
            SimPolicy::Prefix => {
                let amount = budget.map(|budget| self.amount(budget));
                (PolicyName::Never, Some(Prefix::new(self.prefix.clone(), amount)))
            }
        };
        let tuned = self.tuned(name, budget)?;
        Some(Subject { policy, budget, tuned, prefix, rounds: 0, on_round: None })
    }

    fn cost_report(&self) -> CostReport {
        let CostModel { access, visit, l2, reference } = self.cost;
        CostReport { access, visit, l2, reference }
    }
}

/// Machine without a policy.
struct Plain(Machine);

impl Simulator for Plain {
    fn memory(&self) -> MemoryUse {
        self.0.memory()
    }
    fn run(&mut self, batch: &Batch) {
        self.0.run(batch);
    }
}

/// Machine under a policy, with a budget.
struct Subject<'a> {
    policy: SimPolicy,
    budget: Option<Share>,
    tuned: TunedMachine,
    /// Policy that decides in place of the goal of the machine.
    prefix: Option<Prefix>,
    rounds: u64,
    on_round: Option<&'a mut (dyn FnMut(&Round) + Send)>,
}

impl Subject<'_> {
    /// Returns the regions that the policy ranks, highest frequency first.
    fn candidates(&self) -> Vec<Ranked> {
        match self.policy {
            SimPolicy::Tune(PolicyName::Pcc) => merge(&self.tuned.machine().candidates()),
            SimPolicy::Tune(PolicyName::Hawkeye) => self.tuned.covered(),
            _ => Vec::new(),
        }
    }
}

impl Simulator for Subject<'_> {
    fn run(&mut self, batch: &Batch) {
        self.tuned.run(batch);
    }
    fn memory(&self) -> MemoryUse {
        let is_prefix = self.prefix.is_some();
        if is_prefix { self.tuned.machine().memory() } else { self.tuned.memory() }
    }
    fn is_due(&self, accesses: u64, regions: usize) -> bool {
        let is_due = || self.tuned.is_due(accesses, regions);
        self.prefix.as_ref().map_or_else(is_due, |prefix| prefix.is_due(regions))
    }
    fn tick(&mut self, view: &View<'_>) {
        if let Some(prefix) = &mut self.prefix {
            prefix.promote(&mut self.tuned, view);
        } else {
            let Some(round) = self.tuned.decide(view) else { return };
            self.on_round.iter_mut().for_each(|on_round| on_round(&round));
        }
        self.rounds += 1;
    }
    fn note_coverage(&mut self, view: &View<'_>) {
        self.tuned.note_coverage(view.footprint);
    }
}

/// Result of [`policy`].
#[derive(Debug)]
pub struct PolicyResult {
    /// Report.
    pub report: SimPolicyReport,
    /// Promotions and demotions, in order.
    pub acts: Vec<TunedAct>,
    /// Accesses, regions and mappings that the acts refer to.
    pub simulated: Simulated,
}

/// Returns the goal of the rounds of a policy, for a journal; `None` for `prefix`.
pub fn goal_of(setup: &PolicySetup, policy: SimPolicy, budget: Option<Share>) -> Option<Goal> {
    let SimPolicy::Tune(name) = policy else { return None };
    Some(Goal::Tune(Box::new(setup.goal(name, budget)?)))
}

/// Simulates one policy beside machines with base pages and with huge pages only. `on_round` gets
/// each round of the policy.
///
/// # Errors
/// As [`super::simulate`].
///
/// # Panics
/// For a policy of the daemon or of `debloat`, which [`SimPolicy::all`] does not have.
pub fn policy(
    job: &mut Job<'_>,
    setup: &PolicySetup,
    policy: SimPolicy,
    budget: Option<Share>,
    on_round: &mut (dyn FnMut(&Round) + Send),
) -> Result<PolicyResult, TraceError> {
    let mut base = setup.plain(PageClass::Base);
    let mut ideal = setup.plain(PageClass::Huge);
    let mut run = setup.run(policy, budget).expect("a policy of SimPolicy::all");
    run.on_round = Some(on_round);
    let simulators: &mut [&mut dyn Simulator] = &mut [&mut run, &mut base, &mut ideal];
    let (simulated, input) = job.run(Some(setup.interval), simulators)?;
    let reader = Reader::new(setup, &base.0, &simulated);
    let report = SimPolicyReport {
        schema: POLICY_SCHEMA.to_owned(),
        input,
        cpu: setup.cpu.report(),
        interval: setup.interval,
        rounds: run.rounds,
        frames: setup.frames,
        budget_of_bytes: setup.used,
        cost: setup.cost_report(),
        base: reader.plain("never", &base.0),
        run: reader.subject(&run),
        ideal: reader.plain("ideal", &ideal.0),
        prefix_not_found: prefix::not_found(&setup.prefix, &[policy], &reader.places),
        processes: reader.processes(&base.0, run.tuned.machine(), &ideal.0),
        candidates: facts::candidates(&run.candidates(), &reader.places),
    };
    let acts = run.tuned.acts().to_vec();
    drop(run);
    Ok(PolicyResult { report, acts, simulated })
}

/// Simulates each of `policies` with each of `budgets`, in one pass over the accesses.
///
/// # Errors
/// As [`super::simulate`].
pub fn utility(
    job: &mut Job<'_>,
    setup: &PolicySetup,
    policies: &[SimPolicy],
    budgets: &[Share],
) -> Result<SimUtilityReport, TraceError> {
    let mut base = setup.plain(PageClass::Base);
    let mut ideal = setup.plain(PageClass::Huge);
    let pairs = budgets.iter().flat_map(|&budget| policies.iter().map(move |&one| (budget, one)));
    let mut subjects: Vec<Subject<'_>> =
        pairs.filter_map(|(budget, policy)| setup.run(policy, Some(budget))).collect();
    let mut simulators: Vec<&mut dyn Simulator> = vec![&mut base, &mut ideal];
    simulators.extend(subjects.iter_mut().map(|one| one as &mut dyn Simulator));
    let (simulated, input) = job.run(Some(setup.interval), &mut simulators)?;
    let reader = Reader::new(setup, &base.0, &simulated);
    let points = budgets.iter().map(|&budget| UtilityPoint {
        budget_ratio: budget.get(),
        runs: subjects
            .iter()
            .filter(|subject| subject.budget == Some(budget))
            .map(|subject| reader.subject(subject))
            .collect(),
    });
    Ok(SimUtilityReport {
        schema: UTILITY_SCHEMA.to_owned(),
        input,
        cpu: setup.cpu.report(),
        interval: setup.interval,
        frames: setup.frames,
        budget_of_bytes: setup.used,
        cost: setup.cost_report(),
        base: reader.plain("never", &base.0),
        ideal: reader.plain("ideal", &ideal.0),
        prefix_not_found: prefix::not_found(&setup.prefix, policies, &reader.places),
        points: points.collect(),
    })
}

/// Reader of results, compared with base pages.
struct Reader<'a> {
    setup: &'a PolicySetup,
    base: Counts,
    footprint: &'a Footprint,
    places: Places,
}

impl<'a> Reader<'a> {
    fn new(setup: &'a PolicySetup, base: &Machine, simulated: &'a Simulated) -> Self {
        let Simulated { footprint, layout, .. } = simulated;
        Self { setup, base: base.counts(), footprint, places: layout.places(footprint) }
    }

    fn plain(&self, name: &str, machine: &Machine) -> PolicyRun {
        PolicyRun { policy: name.to_owned(), ..self.run(machine) }
    }

    fn subject(&self, subject: &Subject<'_>) -> PolicyRun {
        let acts = subject.tuned.acts();
        let promotions = acts.iter().filter(|act| act.promotes).count() as u64;
        PolicyRun {
            policy: subject.policy.name().to_owned(),
            budget_ratio: subject.budget.map(Share::get),
            promotions,
            demotions: acts.len() as u64 - promotions,
            giant_promotions: subject.tuned.giants(),
            ..self.run(subject.tuned.machine())
        }
    }

    fn processes(&self, base: &Machine, run: &Machine, ideal: &Machine) -> Vec<ProcessRun> {
        let mut all: Vec<ProcessRun> = Vec::new();
        let counts = base.counts_of_regions().zip(run.counts_of_regions());
        let counts = counts.zip(ideal.counts_of_regions());
        let regions = (0_u32..).zip(self.footprint.regions());
        for ((number, region), ((base, with), ideal)) in regions.zip(counts) {
            let process = region.process();
            for process in u16::try_from(all.len()).unwrap_or(u16::MAX)..=process {
                all.push(ProcessRun { process, ..ProcessRun::default() });
            }
            let one = &mut all[usize::from(process)];
            one.accesses += base.accesses;
            one.base_walks += base.walks;
            one.walks += with.walks;
            one.ideal_walks += ideal.walks;
            one.regions += 1;
            one.huge_regions += u64::from(run.class(number) != PageClass::Base);
        }
        all
    }

    #[allow(clippy::cast_precision_loss)]
    fn run(&self, machine: &Machine) -> PolicyRun {
        let (counts, visits) = (machine.counts(), self.footprint.visits());
        let cycles = |counts| self.setup.cost.cycles(counts, visits);
        let regions = self.footprint.regions().len();
        let huge = (0_u32..).take(regions).filter(|&one| machine.class(one) != PageClass::Base);
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        PolicyRun {
            counts: facts::counts(counts),
            per_page_size: facts::per_page_size(machine),
            per_mapping: facts::per_mapping(machine, self.footprint, &self.places),
            huge_ratio: share(huge.count() as f64, regions as f64),
            walks_avoided_ratio: share(
                self.base.walks as f64 - counts.walks as f64,
                self.base.walks as f64,
            ),
            speedup: if counts.accesses > 0 { cycles(self.base) / cycles(counts) } else { 1.0 },
            ..PolicyRun::default()
        }
    }
}

#[cfg(test)]
mod tests;
