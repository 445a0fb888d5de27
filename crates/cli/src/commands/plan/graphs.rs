//! `orlop plan X.jsonl` and `orlop plan X.json`: plans of graphs.

use orlop::alloc::{
    ArenaId, Error, Flaw, MemoryPlan, PlanOptions, PlanWithin, SavedMemoryPlan, Sharing, ValueId, floor,
    plan_as_ggml, plan_memory_until, plan_reordered_until, plan_within_until,
};
use orlop::plan::{PlanError, SolveOptions, Strategy};
use serde::Serialize;

use crate::failure::Failure;
use crate::graph_file::{GraphCase, read_lines};
use crate::input::Input;
use crate::output::Output;
use crate::printer::Printer;
use crate::quantity::short_bytes;

use super::added_steps::{AddedReport, PlacedStep, placed_steps};
use super::arguments::PlanArguments;
use super::clock::Clock;
use super::graph_picture::{fitted_picture, picture};
use super::pictures::Pictures;
use super::trade_offs::trade_offs;

/// Limit on storages listed by `--explain`.
const NAMED: usize = 20;

/// Growth of the effort while a search continues.
const EFFORT_STEP: u64 = 4;

/// Searches for a plan of the given steps within a capacity, before steps are added.
const SEARCHES: u32 = 4;

/// The `--json` output of a graph.
#[derive(Serialize)]
struct Report<'a> {
    label: &'a str,
    buffers: Vec<BufferReport<'a>>,
    /// The largest step's own operands and results: no plan is smaller, whatever steps are added.
    floor: u64,
    /// Estimated time of the given steps.
    seconds: f64,
    /// If steps were added to meet the capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    added: Option<AddedReport>,
}

#[derive(Serialize)]
struct BufferReport<'a> {
    name: &'a str,
    /// Peak of ggml's algorithm.
    ggml: u64,
    /// With `--reorder`, the peak in the original order.
    #[serde(skip_serializing_if = "Option::is_none")]
    given: Option<u64>,
    /// Peak of the plan.
    peak: u64,
    /// Most bytes live at one step, with ggml's lifetimes and in-place operations.
    bound: u64,
    /// Whether the peak is minimal for the plan's in-place operations.
    optimal: bool,
}

/// The `--output` of a graph: tensor, buffer, chunk, offset.
#[derive(Serialize)]
struct Places<'a> {
    label: &'a str,
    ggml: Vec<(usize, usize, u32, u64)>,
    plan: Vec<(usize, usize, u32, u64)>,
    /// With `--reorder`, the nodes in the plan's order, by position in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    order: Option<&'a [usize]>,
    /// If steps were added: all steps. `plan` is about `values` then.
    #[serde(skip_serializing_if = "Option::is_none")]
    steps: Option<Vec<PlacedStep>>,
    /// If steps were added: the tensor that each value holds, and the value whose memory it is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<(usize, usize)>>,
}

/// Both plans of a graph.
struct Planned {
    ggml: MemoryPlan,
    /// `None` for `--strategy ggml`.
    own: Option<MemoryPlan>,
    reordering: Option<Reordering>,
    /// A plan with added steps, if no other fits the capacity.
    within: Option<PlanWithin>,
    floor: u64,
}

/// With `--reorder`: the original positions of the plan's steps, and the peaks in the original order.
struct Reordering {
    order: Vec<usize>,
    /// By arena.
    given: Vec<u64>,
}

impl Planned {
    fn best(&self) -> &MemoryPlan {
        let within = self.within.as_ref().map(|within| &within.plan);
        within.or(self.own.as_ref()).unwrap_or(&self.ggml)
    }

    /// The failure for a capacity that the plan exceeds.
    fn over(&self, case: &GraphCase, capacity: u64) -> Option<Failure> {
        let (label, location, peak) = (&case.label, &case.location, self.best().total());
        if peak <= capacity {
            return None;
        }
        Some(match self.floor > capacity {
            true => Failure::Impossible(format!(
                "{location}: the largest step of `{label}` has {floor} bytes of operands and results, more than the \
                 capacity of {capacity}; use a --capacity of {floor} or more",
                floor = self.floor
            )),
            false => Failure::OverLimits(format!(
                "{location}: the best plan found for `{label}` takes {peak} bytes, more than the capacity of {capacity}; \
                 use a larger --effort or --capacity"
            )),
        })
    }
}

/// Sums over the buffers of one graph, or of all graphs.
#[derive(Clone, Copy, Default)]
struct Sums {
    ggml: u128,
    given: Option<u128>,
    peak: u128,
    bound: u128,
    floor: u128,
    /// With `--capacity`.
    added: Option<AddedTime>,
}

/// What meeting a capacity costs.
#[derive(Clone, Copy)]
struct AddedTime {
    /// Of added steps.
    seconds: f64,
    /// Of the given ones.
    given: f64,
    /// Whether every graph meets it.
    is_met: bool,
}

impl Sums {
    fn of(case: &GraphCase, planned: &Planned, capacity: Option<u64>) -> Sums {
        let given = planned.reordering.as_ref().map(|reordering| reordering.given.iter());
        let given = given.map(|bytes| bytes.map(|bytes| u128::from(*bytes)).sum());
        let added = capacity.map(|capacity| AddedTime {
            seconds: planned.within.as_ref().map_or(0.0, |within| within.cost.seconds()),
            given: case.facts.seconds.iter().sum(),
            is_met: planned.best().total() <= capacity,
        });
        let mut sums = Sums { given, added, floor: u128::from(planned.floor), ..Sums::default() };
        for (ggml, best) in planned.ggml.arenas.iter().zip(&planned.best().arenas) {
            sums.ggml += u128::from(ggml.peak);
            sums.peak += u128::from(best.peak);
            sums.bound += u128::from(ggml.bound);
        }
        sums
    }

    fn add(&mut self, other: Sums) {
        self.ggml += other.ggml;
        self.given = other.given.map(|given| given + self.given.unwrap_or(0));
        self.peak += other.peak;
        self.bound += other.bound;
        self.floor += other.floor;
        self.added = other.added.map(|other| {
            self.added.map_or(other, |own| AddedTime {
                seconds: own.seconds + other.seconds,
                given: own.given + other.given,
                is_met: own.is_met && other.is_met,
            })
        });
    }

    fn ratio(&self) -> f64 {
        if self.bound == 0 { 1.0 } else { self.peak as f64 / self.bound as f64 }
    }
}

/// Plans graphs one by one and prints the results.
pub(crate) fn run(cases: &[GraphCase], arguments: &PlanArguments) -> Result<(), Failure> {
    if let (Some(_), [_, second, ..]) = (&arguments.save, cases) {
        return Err(Failure::BadInput(format!(
            "{}: --save needs a single graph, but the file also has `{}`; select one with --graph",
            second.location, second.label
        )));
    }
    let mut printer = Printer::new();
    let mut output = arguments.search.output.as_deref().map(Output::create).transpose()?;
    let width = cases.iter().map(|case| case.label.chars().count()).max().unwrap_or(0).max("graph".len());
    let mut total = Sums::default();
    let mut pictures = Pictures::default();
    let mut over: Option<Failure> = None;
    let capacity = arguments.search.capacity;
    if !arguments.json {
        let head = ["ggml", "original", "peak", "bound", "floor", "added time", "peak/bound"].into_iter();
        let head = head.filter(|name| arguments.order.reorder || *name != "original");
        let head = head.filter(|name| capacity.is_some() || *name != "added time");
        printer.line(row("graph", width, head.map(str::to_owned)))?;
    }
    for case in cases {
        let planned = plan(case, arguments)?;
        let sums = Sums::of(case, &planned, capacity);
        if let Some(output) = &mut output {
            let text =
                serde_json::to_string(&places(case, &planned)).map_err(|e| Failure::Other(e.into()))?;
            output.write(&text)?;
            output.write("\n")?;
        }
        if let (Some(path), Some(_)) = (&arguments.save, &planned.within) {
            return Err(Failure::BadInput(format!(
                "{}: the plan of `{}` has added steps, which {} cannot keep; use --output",
                case.location,
                case.label,
                path.display()
            )));
        }
        if let Some(path) = &arguments.save {
            let saved = serde_json::to_string(&SavedMemoryPlan::new(planned.best()));
            let mut file = Output::create(path)?;
            file.write(&saved.map_err(|error| Failure::Other(error.into()))?)?;
            file.write("\n")?;
            file.finish()?;
        }
        if arguments.json {
            printer.json(&report(case, &planned))?;
        } else {
            printer.line(row(&case.label, width, cells(&sums)))?;
        }
        if arguments.explain {
            explain(&mut printer, planned.best())?;
        }
        if arguments.pictures.are_wanted() {
            let mut drawn = match &planned.within {
                Some(within) => fitted_picture(case, within),
                None => picture(case, planned.best(), &case.label),
            };
            if arguments.pictures.html.is_some() && cases.len() == 1 {
                drawn.trade_offs =
                    trade_offs(case, planned.own.as_ref().unwrap_or(&planned.ggml).total(), planned.floor);
            }
            pictures.plans.push(drawn);
            if cases.len() == 1 && planned.own.is_some() {
                let title = format!("{}, planned by ggml", case.label);
                pictures.others.push(picture(case, &planned.ggml, &title));
            }
        }
        over = over.or_else(|| planned.over(case, capacity?));
        total.add(sums);
    }
    if !arguments.json && cases.len() > 1 {
        printer.line(row(&format!("{} graphs", cases.len()), width, cells(&total)))?;
    }
    output.map_or(Ok(()), Output::finish)?;
    arguments.pictures.deliver(&mut printer, &pictures)?;
    over.map_or(Ok(()), Err)
}

/// The graphs of a file whose labels contain the text of `--graph`.
pub(super) fn chosen(input: &Input, arguments: &PlanArguments) -> Result<Vec<GraphCase>, Failure> {
    let mut cases = read_lines(input)?;
    let Some(part) = &arguments.selection.graph else { return Ok(cases) };
    let labels: Vec<String> = cases.iter().map(|case| case.label.clone()).collect();
    cases.retain(|case| case.label.contains(part.as_str()));
    match labels.first() {
        Some(first) if cases.is_empty() => Err(Failure::BadInput(format!(
            "{}: none of the {} labels contains `{part}`; use part of a label, such as `{first}`, for --graph",
            input.name,
            labels.len()
        ))),
        _ => Ok(cases),
    }
}

/// The plan that `orlop plan` reports.
pub(super) fn best(case: &GraphCase, arguments: &PlanArguments) -> Result<MemoryPlan, Failure> {
    let Planned { ggml, own, .. } = plan(case, arguments)?;
    Ok(own.unwrap_or(ggml))
}

/// Computes and checks both plans of a graph.
fn plan(case: &GraphCase, arguments: &PlanArguments) -> Result<Planned, Failure> {
    let refused = |error: Error| refusal(case, &error);
    let ggml = plan_as_ggml(&case.usage).map_err(refused)?;
    let mut options = PlanOptions { search: arguments.search.options(), sharing: Sharing::Full };
    if arguments.search.continues() {
        options.search.effort = SolveOptions::DEFAULT_EFFORT;
    }
    let clock = Clock::start(arguments.search.time_limit);
    let stop = || clock.is_over();
    let floor = floor(&case.usage).map_err(refused)?.bytes;
    let capacity = arguments.search.capacity;
    // Steps are added in one buffer only.
    let may_add =
        case.usage.arenas.len() == 1 && capacity.is_some() && arguments.search.strategy != Strategy::Ggml;
    let ends = capacity.is_some() && (may_add || arguments.search.time_limit.is_none());
    let mut searches = 0;
    let (own, reordering) = loop {
        let (own, reordering) = match arguments.search.strategy {
            _ if arguments.order.reorder => {
                let best = plan_reordered_until(&case.usage, &options, &stop).map_err(refused)?;
                let given = best.given.arenas.iter().map(|arena| arena.peak).collect();
                (Some(best.plan), Some(Reordering { order: best.order, given }))
            }
            Strategy::Ggml => (None, None),
            _ => (Some(plan_memory_until(&case.usage, &options, &stop).map_err(refused)?), None),
        };
        // Arenas take turns with growing effort, so that one does not spend the time of the others.
        let is_done = |plan: &MemoryPlan| {
            let fits = capacity.is_some_and(|capacity| plan.total() <= capacity);
            let bound = plan.arenas.iter().fold(0u64, |sum, arena| sum.saturating_add(arena.bound));
            let is_hopeless = capacity.is_some_and(|capacity| bound > capacity);
            fits || is_hopeless || plan.arenas.iter().all(|arena| arena.optimal)
        };
        searches += 1;
        let is_last = !arguments.search.continues() || (ends && searches == SEARCHES) || clock.is_over();
        if is_last || own.as_ref().is_none_or(is_done) {
            break (own, reordering);
        }
        options.search.effort = options.search.effort.saturating_mul(EFFORT_STEP);
    };
    let flawed = |flaw: Flaw| Failure::internal_error(format!("{}: `{}`: {flaw}", case.location, case.label));
    match ggml.check() {
        // ggml's last chunk is unlimited.
        Ok(()) | Err(Flaw::ChunkTooLarge { .. }) => {}
        Err(flaw) => return Err(flawed(flaw)),
    }
    if let Some(own) = &own {
        own.check().map_err(flawed)?;
    }
    let within = match (&own, capacity) {
        (Some(own), Some(capacity)) if may_add && (floor..own.total()).contains(&capacity) => {
            options.search.effort = options.search.effort.min(SolveOptions::DEFAULT_EFFORT);
            within(case, capacity, &options, &stop)?
        }
        _ => None,
    };
    Ok(Planned { ggml, own, reordering, within, floor })
}

/// A plan with added steps, checked; `None` if none was found.
fn within(
    case: &GraphCase,
    capacity: u64,
    options: &PlanOptions,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Option<PlanWithin>, Failure> {
    let made = match plan_within_until(&case.usage, capacity, &case.facts, options, stop) {
        Ok(made) => made,
        Err(Error::NoPlanWithin { .. }) => return Ok(None),
        Err(error) => return Err(refusal(case, &error)),
    };
    let flawed = |flaw: &dyn std::fmt::Display| {
        Failure::internal_error(format!("{}: `{}`: {flaw}", case.location, case.label))
    };
    made.plan.check().map_err(|flaw| flawed(&flaw))?;
    made.check(&case.usage, &case.facts).map_err(|flaw| flawed(&flaw))?;
    Ok(Some(made))
}

fn refusal(case: &GraphCase, error: &Error) -> Failure {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    let sentence = format!("{}: `{}`: {error}{cause}", case.location, case.label);
    match error {
        Error::Plan { source, .. } if matches!(**source, PlanError::ChunkLimit { .. }) => {
            Failure::OverLimits(format!("{sentence}; use another --strategy"))
        }
        _ => Failure::BadInput(format!("{sentence}; correct the graph")),
    }
}

fn report<'a>(case: &'a GraphCase, planned: &Planned) -> Report<'a> {
    let arenas = case.usage.arenas.iter().zip(planned.ggml.arenas.iter().zip(&planned.best().arenas));
    let given = |arena: usize| Some(planned.reordering.as_ref()?.given[arena]);
    let buffers = arenas.enumerate().map(|(index, (info, (ggml, best)))| BufferReport {
        name: &info.name,
        ggml: ggml.peak,
        given: given(index),
        peak: best.peak,
        bound: ggml.bound,
        optimal: best.optimal,
    });
    let added = planned.within.as_ref().map(|within| AddedReport::new(&within.cost));
    let seconds = case.facts.seconds.iter().sum();
    Report { label: &case.label, buffers: buffers.collect(), floor: planned.floor, seconds, added }
}

fn places<'a>(case: &'a GraphCase, planned: &'a Planned) -> Places<'a> {
    let list = |plan: &MemoryPlan| {
        let owners =
            plan.usage.values().iter().enumerate().filter(|(index, value)| value.root.index() == *index);
        let placed = owners.filter_map(|(index, _)| {
            let place = plan.place(ValueId::new(index))?;
            Some((index, place.arena.index(), place.chunk, place.offset))
        });
        placed.collect()
    };
    let order = planned.reordering.as_ref().map(|reordering| &*reordering.order);
    let values = |within: &PlanWithin| {
        let roots = within.plan.usage.values().iter().map(|value| value.root.index());
        within.origins.iter().map(|origin| origin.index()).zip(roots).collect()
    };
    Places {
        label: &case.label,
        ggml: list(&planned.ggml),
        plan: list(planned.best()),
        order: order.filter(|_| planned.within.is_none()),
        steps: planned.within.as_ref().map(placed_steps),
        values: planned.within.as_ref().map(values),
    }
}

fn cells(sums: &Sums) -> impl Iterator<Item = String> {
    let bytes = |sum: u128| short_bytes(u64::try_from(sum).unwrap_or(u64::MAX));
    let sizes = [Some(sums.ggml), sums.given, Some(sums.peak), Some(sums.bound), Some(sums.floor)];
    let added = sums.added.map(|AddedTime { seconds, given, is_met }| match is_met {
        true => format!("{:.2} %", 100.0 * seconds / given.max(f64::MIN_POSITIVE)),
        false => "not met".to_owned(),
    });
    sizes.into_iter().flatten().map(bytes).chain(added).chain([format!("{:.4}", sums.ratio())])
}

fn row(label: &str, width: usize, cells: impl Iterator<Item = String>) -> String {
    cells.fold(format!("{label:<width$}"), |line, cell| format!("{line}  {cell:>12}"))
}

/// Lists, for each buffer, the storages live at its peak.
fn explain(printer: &mut Printer, plan: &MemoryPlan) -> Result<(), Failure> {
    for (index, info) in plan.usage.arenas.iter().enumerate() {
        let (step, storages) = plan.peak(ArenaId::new(index));
        if storages.is_empty() {
            continue;
        }
        let bytes = short_bytes(storages.iter().map(|storage| storage.bytes).sum());
        let count = storages.len();
        let (name, last) = (&info.name, plan.usage.step_count().saturating_sub(1));
        printer
            .line(format_args!("  {name}: step {step} of 0..={last} needs {bytes}, in {count} storages"))?;
        for storage in storages.iter().take(NAMED) {
            printer.line(format_args!(
                "  {:>12}  at {:<16}  steps {} to {}  {}",
                short_bytes(storage.bytes),
                format!("{}:{}", storage.place.chunk, storage.place.offset),
                storage.live.start,
                storage.live.end.saturating_sub(1),
                storage.name
            ))?;
        }
        if count > NAMED {
            printer.line(format_args!("  {:>12}  more", count - NAMED))?;
        }
    }
    Ok(())
}
