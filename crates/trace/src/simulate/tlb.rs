//! Simulation of TLBs: a machine for each page size.

use hugepilot_reports::sim::{SimMachine, SimTlbReport, TLB_SCHEMA};
use hugepilot_sim::{
    BASE_SHIFT, Batch, Machine, MachineConfig, MemoryUse, PageClass, Places, merge,
};
use hugepilot_units::Bytes;

use super::facts::{self, CpuSetup};
use super::{Job, Simulated, Simulator};
use crate::TraceError;

/// Machine whose regions all have pages of one class.
struct Plain {
    class: PageClass,
    machine: Machine,
}

impl Simulator for Plain {
    fn memory(&self) -> MemoryUse {
        self.machine.memory()
    }
    fn run(&mut self, batch: &Batch) {
        self.machine.run(batch);
    }
}

/// Returns the size of a page.
pub(super) const fn page_bytes(class: PageClass) -> Bytes {
    Bytes::new(1 << (BASE_SHIFT + class.shift()))
}

/// Simulates a machine for each of `classes`.
///
/// # Errors
/// As [`super::simulate`].
pub fn tlb(
    job: &mut Job<'_>,
    cpu: &CpuSetup,
    classes: &[PageClass],
) -> Result<SimTlbReport, TraceError> {
    let machine = |&class: &PageClass| Plain {
        class,
        machine: Machine::new(MachineConfig { first_class: class, ..cpu.machine() }),
    };
    let mut machines: Vec<Plain> = classes.iter().map(machine).collect();
    let mut simulators: Vec<&mut dyn Simulator> =
        machines.iter_mut().map(|one| one as &mut dyn Simulator).collect();
    let (simulated, input) = job.run(None, &mut simulators)?;
    let places = simulated.layout.places(&simulated.footprint);
    Ok(SimTlbReport {
        schema: TLB_SCHEMA.to_owned(),
        input,
        cpu: cpu.report(),
        machines: machines.iter().map(|one| report(one, &simulated, &places)).collect(),
    })
}

fn report(Plain { class, machine }: &Plain, simulated: &Simulated, places: &Places) -> SimMachine {
    let candidates = match class {
        PageClass::Base => facts::candidates(&merge(&machine.candidates()), places),
        _ => Vec::new(),
    };
    SimMachine {
        page_bytes: page_bytes(*class),
        counts: facts::counts(machine.counts()),
        per_page_size: facts::per_page_size(machine),
        per_mapping: facts::per_mapping(machine, &simulated.footprint, places),
        candidates,
    }
}
