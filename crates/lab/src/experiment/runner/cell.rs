//! Programs of a cell, the acts on them, and their values.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use hugepilot_kernel::Root;
use hugepilot_kernel::system::{CpuTimes, SystemMeter};
use serde_json::Value;

use super::Lab;
use super::process::{Command, Ran};
use crate::experiment::plan::{Due, Group};
use crate::experiment::runs::{LabRun, value_name};
use crate::experiment::values::{is_printed, number, objects, with_schema};
use crate::experiment::{ExperimentError, MeasureUnit};

/// Cell that ended.
struct CellRan {
    /// Outputs of its program and of those beside it.
    programs: Vec<Ran>,
    /// Objects that acts printed.
    acts: Vec<Value>,
}

/// Acts that ended: the objects that they printed, and what each program printed meanwhile.
type Acted = (Vec<Value>, Vec<Range<usize>>);

impl Lab<'_> {
    /// Runs a cell, and reads its values.
    pub(super) fn measure(
        &self,
        group: &Group,
        due: &Due,
        run: &mut LabRun,
    ) -> Result<(), ExperimentError> {
        let mut meter = SystemMeter::open(&Root::live());
        let before = meter.read().cpu;
        let begun = Instant::now();
        let ran = self.run_cell(group, due)?;
        run.seconds = begun.elapsed().as_secs_f64();
        run.steal_ratio = before.zip(meter.read().cpu).and_then(|(before, after)| {
            let all = |of: &CpuTimes| of.user + of.system + of.idle + of.steal;
            let spent = (all(&after) - all(&before)).as_seconds();
            (spent > 0.0).then(|| (after.steal - before.steal).as_seconds() / spent)
        });
        match ran.and_then(|ran| self.values(due, &ran)) {
            Ok(values) => run.values = values,
            Err(cause) => run.failed = Some(cause),
        }
        Ok(())
    }

    /// Runs the programs of a cell, and the acts on them; or returns why there is no result.
    fn run_cell(
        &self,
        group: &Group,
        due: &Due,
    ) -> Result<Result<CellRan, String>, ExperimentError> {
        let words = std::iter::once(&due.words).chain(&due.beside);
        let mut running = words.map(|words| self.command(words)).collect::<Result<Vec<_>, _>>()?;
        let (acts, acted) = match self.act_on(group, due, &mut running)? {
            Ok(acted) => acted,
            Err(cause) => {
                running.into_iter().for_each(Command::end);
                return Ok(Err(cause));
            }
        };
        let mut programs = Vec::new();
        for (program, acted) in running.into_iter().zip(acted) {
            let mut ran = program.output(self.timeout, self.interrupted)?;
            ran.printed.acted = acted;
            programs.push(ran);
        }
        Ok(Ok(CellRan { programs, acts }))
    }

    /// Runs the acts of a cell on its programs; or returns why that failed.
    fn act_on(
        &self,
        group: &Group,
        due: &Due,
        programs: &mut [Command],
    ) -> Result<Result<Acted, String>, ExperimentError> {
        if due.act.is_empty() {
            return Ok(Ok((Vec::new(), vec![0..0; programs.len()])));
        }
        let mut panel = group.panel.clone();
        panel.set_word("round", (due.round + 1).to_string());
        let mut pids = Vec::new();
        for program in &mut *programs {
            match program.ready_pid(self.timeout, self.interrupted)? {
                Ok(pid) => pids.push(pid),
                Err(cause) => return Ok(Err(format!("it printed no pid: {cause}"))),
            }
        }
        for (index, pid) in pids.iter().enumerate() {
            let number = if index == 0 { String::new() } else { (index + 1).to_string() };
            panel.set_word(&format!("pid{number}"), pid.clone());
        }
        panel.set("pids", &pids.iter().map(|pid| format!("-p {pid} ")).collect::<String>());
        let begun: Vec<usize> = programs.iter().map(whole_lines).collect();
        let mut found = Vec::new();
        for line in &due.act {
            let words = panel.words(line)?;
            match self.act(&words, programs)? {
                Ok(objects) => found.extend(objects),
                Err(cause) => return Ok(Err(format!("the act {}: {cause}", words.join(" ")))),
            }
        }
        let ended = programs.iter().map(whole_lines);
        Ok(Ok((found, begun.into_iter().zip(ended).map(|(from, to)| from..to).collect())))
    }

    /// Runs an act to its end, and returns the objects that it printed; or why it failed.
    fn act(
        &self,
        words: &[String],
        programs: &mut [Command],
    ) -> Result<Result<Vec<Value>, String>, ExperimentError> {
        let mut act = self.command(words)?;
        let mut lost = None;
        act.until(self.timeout, self.interrupted, |act| {
            lost = programs.iter_mut().find_map(Command::lost);
            act.ended().map(|_| ()).or_else(|| lost.as_ref().map(|_| ()))
        })?;
        if let Some(cause) = lost {
            act.end();
            return Ok(Err(format!("the command did not outlast it: {cause}")));
        }
        let ran = act.output(self.timeout, self.interrupted)?;
        Ok(match ran.status {
            Some(0) => Ok(objects(&ran.printed.text)),
            _ => Err(ran.cause("it failed")),
        })
    }

    /// The values of a cell by name; else why there is none.
    fn values(&self, due: &Due, ran: &CellRan) -> Result<BTreeMap<String, f64>, String> {
        let mut values = BTreeMap::new();
        let own = &ran.programs[0].printed;
        let found: Vec<Value> = objects(&own.text).into_iter().chain(ran.acts.clone()).collect();
        for (index, program) in ran.programs.iter().enumerate() {
            let further = objects(&program.printed.text);
            let objects = if index == 0 { &found } else { &further };
            let value = self.value(due, program, objects);
            let value = value.map_err(|missing| program.cause(missing))?;
            values.insert(value_name(index + 1), value);
        }
        for (name, place) in &self.experiment.measure.also {
            let of = match is_printed(place) {
                true => own.number(place),
                false => found.iter().rev().find_map(|object| number(object, place)),
            };
            values.extend(of.map(|value| (name.clone(), value)));
        }
        Ok(values)
    }

    /// The value in the output of a program, or in `found`; else what is missing.
    fn value(&self, due: &Due, ran: &Ran, found: &[Value]) -> Result<f64, &'static str> {
        let measure = &self.experiment.measure;
        let value = if ran.status.is_none() {
            return Err("it was killed, or its time was over");
        } else if is_printed(&due.value) {
            match ran.status {
                Some(0) => ran.printed.number(&due.value),
                _ => return Err("it failed"),
            }
        } else {
            let object = with_schema(found, &due.schema).ok_or("it printed no result")?;
            if measure.check.as_ref().is_some_and(|at| object.pointer(at) != Some(&true.into())) {
                return Err("its result is wrong or was not verified");
            }
            number(object, &due.value)
        };
        let value = value.ok_or("its result has no value")?;
        let value = if measure.unit == MeasureUnit::Nanoseconds { value / 1e9 } else { value };
        if value.is_finite() && value > 0.0 {
            Ok(value)
        } else {
            Err("its value is not above zero")
        }
    }
}

/// Length of the complete lines that a command printed so far.
fn whole_lines(command: &Command) -> usize {
    command.text().rfind('\n').map_or(0, |end| end + 1)
}
