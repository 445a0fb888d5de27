//! `orlop plan X.csv`: plans of buffers with lifetimes.

use std::path::Path;

use orlop::plan::{BufferId, Plan, PlanError, SavedPlan, solve_until, verify};
use orlop::view::Picture;
use serde::Serialize;

use crate::failure::Failure;
use crate::output::Output;
use crate::printer::Printer;
use crate::problem_file::ProblemFile;

use super::arguments::PlanArguments;
use super::clock::Clock;
use super::pictures::Pictures;

/// Limit on buffers listed by `--explain` and in errors.
const NAMED: usize = 20;

/// The `--json` output.
#[derive(Serialize)]
struct Report {
    buffers: usize,
    bound: u64,
    peak: u64,
    /// Bytes above the bound.
    gap: u64,
    optimal: bool,
    strategy: &'static str,
    seconds: f64,
    /// `"time"` if the time limit ended the search.
    stopped: Option<&'static str>,
}

/// Plans a problem and prints the result.
pub(crate) fn run(file: &ProblemFile, arguments: &PlanArguments) -> Result<(), Failure> {
    let mut problem = file.problem.clone();
    problem.capacity = arguments.search.capacity;
    let clock = Clock::start(arguments.search.time_limit);
    let solved = solve_until(&problem, &arguments.search.options(), &|| clock.is_over());
    let seconds = clock.seconds();
    let (plan, over) = match solved {
        Ok(plan) => (plan, None),
        Err(PlanError::OverCapacity { capacity, best }) => (*best, Some(capacity)),
        Err(error) => return Err(refusal(file, error)),
    };
    // The best plan found is valid apart from the capacity.
    problem.capacity = None;
    verify(&problem, &plan).map_err(|flaw| Failure::internal_error(format!("{}: {flaw}", file.name)))?;

    if let Some(path) = &arguments.search.output {
        let mut output = Output::create(path)?;
        output.write(&file.with_offsets(plan.places.iter().map(|place| place.offset)))?;
        output.finish()?;
    }
    if let Some(path) = &arguments.save {
        let saved = SavedPlan::new(&problem, plan.clone());
        let mut output = Output::create(path)?;
        output.write(&serde_json::to_string(&saved).map_err(|error| Failure::Other(error.into()))?)?;
        output.write("\n")?;
        output.finish()?;
    }
    let is_done = plan.optimal || (arguments.search.capacity.is_some() && over.is_none());
    let report = Report {
        buffers: problem.buffers.len(),
        bound: plan.bound,
        peak: plan.peak,
        gap: plan.gap(),
        optimal: plan.optimal,
        strategy: plan.strategy.name(),
        seconds,
        stopped: clock.was_over().then_some("time").filter(|_| !is_done),
    };
    let mut printer = Printer::new();
    if arguments.json {
        printer.json(&report)?
    } else {
        print(&mut printer, &report)?
    }
    if arguments.explain {
        explain(&mut printer, file, &plan)?;
    }
    if arguments.pictures.are_wanted() {
        let pictures = Pictures { plans: vec![picture(file, &plan)], others: Vec::new() };
        arguments.pictures.deliver(&mut printer, &pictures)?;
    }
    match over {
        None => Ok(()),
        Some(capacity) => Err(Failure::OverLimits(format!(
            "{}: the best plan found takes {} bytes, more than the capacity of {capacity} (lower bound: {}); use a larger \
             --effort, --time-limit or --capacity",
            file.name, plan.peak, plan.bound
        ))),
    }
}

/// The picture of a file's plan.
pub(super) fn picture(file: &ProblemFile, plan: &Plan) -> Picture {
    let title = Path::new(&file.name).file_name().unwrap_or_default().to_string_lossy();
    Picture::of_problem(&title, &file.problem, plan, |index| file.id(index).to_owned())
}

/// The plan that `orlop plan` reports.
pub(super) fn best(file: &ProblemFile, arguments: &PlanArguments) -> Result<Plan, Failure> {
    let clock = Clock::start(arguments.search.time_limit);
    solve_until(&file.problem, &arguments.search.options(), &|| clock.is_over())
        .map_err(|error| refusal(file, error))
}

/// The failure for a planning error.
fn refusal(file: &ProblemFile, error: PlanError) -> Failure {
    let name = &file.name;
    match error {
        PlanError::Impossible { capacity, bound, together } => Failure::Impossible(format!(
            "{name}: {bound} bytes are live at one step, more than the capacity of {capacity}, which {} exceed \
             together; use a --capacity of {bound} or more",
            names(file, &together)
        )),
        PlanError::NoPlan { capacity, together } => Failure::Impossible(format!(
            "{name}: no plan fits the capacity of {capacity}: {} cannot be placed together; use a larger --capacity",
            names(file, &together)
        )),
        PlanError::LargerThanCapacity { buffer, footprint, capacity } => Failure::Impossible(format!(
            "{name}: buffer `{}` takes {footprint} bytes, more than the capacity of {capacity}; use a larger --capacity",
            file.id(buffer.index())
        )),
        error => Failure::BadInput(format!("{name}: {error}; use smaller sizes or another --strategy")),
    }
}

/// The first buffers by the names of the file.
fn names(file: &ProblemFile, ids: &[BufferId]) -> String {
    let named: Vec<String> = ids.iter().take(NAMED).map(|id| format!("`{}`", file.id(id.index()))).collect();
    match ids.len().saturating_sub(NAMED) {
        0 => format!("the buffers {}", named.join(", ")),
        more => format!("the buffers {} and {more} more", named.join(", ")),
    }
}

fn print(printer: &mut Printer, report: &Report) -> Result<(), Failure> {
    let percent = match report.bound {
        0 => 0.0,
        bound => 100.0 * report.gap as f64 / bound as f64,
    };
    printer.line(format_args!("buffers   {:>20}", report.buffers))?;
    printer.line(format_args!("bound     {:>20} bytes", report.bound))?;
    printer.line(format_args!("peak      {:>20} bytes", report.peak))?;
    printer.line(format_args!("gap       {:>20} bytes ({percent:.3} % of the bound)", report.gap))?;
    printer.line(format_args!("optimal   {:>20}", if report.optimal { "yes" } else { "not proven" }))?;
    printer.line(format_args!("strategy  {:>20}", report.strategy))?;
    printer.line(format_args!("time      {:>20.6} seconds", report.seconds))?;
    match report.stopped {
        Some(_) => printer.line(format_args!("stopped   {:>20}", "time limit")),
        None => Ok(()),
    }
}

/// Lists the buffers live at the peak.
fn explain(printer: &mut Printer, file: &ProblemFile, plan: &Plan) -> Result<(), Failure> {
    let buffers = &file.problem.buffers;
    let bytes = |index: usize| buffers[index].footprint().unwrap_or(buffers[index].size);
    let mut changes: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * buffers.len());
    for (index, buffer) in buffers.iter().enumerate() {
        changes.push((buffer.live.start, true, index));
        changes.push((buffer.live.end, false, index));
    }
    // Ends come before starts of the same step.
    changes.sort_unstable();
    let (mut now, mut most, mut step) = (0, 0, 0);
    for (at, begins, index) in changes {
        now = if begins { now + bytes(index) } else { now - bytes(index) };
        if now > most {
            (most, step) = (now, at);
        }
    }
    let mut alive: Vec<usize> = (0..buffers.len())
        .filter(|index| buffers[*index].live.contains(&step) && bytes(*index) > 0)
        .collect();
    alive.sort_by_key(|index| (std::cmp::Reverse(bytes(*index)), *index));
    printer.line(format_args!("\nstep {step} needs {most} bytes, in {} buffers:", alive.len()))?;
    for index in alive.iter().take(NAMED) {
        let (live, place) = (&buffers[*index].live, plan.places[*index]);
        printer.line(format_args!(
            "{:>20} bytes at {:<20} {} (steps {}..{})",
            bytes(*index),
            place.offset,
            file.id(*index),
            live.start,
            live.end
        ))?;
    }
    match alive.len().saturating_sub(NAMED) {
        0 => Ok(()),
        rest => printer.line(format_args!("{:>20} more", rest)),
    }
}
