//! `--diff`: compares two plans.

use std::path::Path;
use std::sync::Arc;

use orlop::alloc::{MemoryPlan, SavedMemoryPlan};
use orlop::model_pictures::pictures_with;
use orlop::plan::SavedPlan;
use orlop::view::{Difference, Picture, page_beside};
use serde::Deserialize;

use crate::failure::Failure;
use crate::graph_file::{self, GraphCase};
use crate::input::{Input, Kind};
use crate::model_plan_file::ModelPlanFile;
use crate::printer::Printer;
use crate::problem_file::ProblemFile;

use super::arguments::PlanArguments;
use super::model::PlannedModel;
use super::pictures::{refused, write};
use super::{graph_picture, graphs, model, problem};

/// Limit on listed changes without `--json`.
const LISTED: usize = 40;

/// One side of a comparison.
enum Side {
    Model,
    Problem(ProblemFile),
    Graphs(Kind, Vec<GraphCase>),
    Saved(Saved),
}

impl Side {
    /// The kind of file to plan; `None` for a saved plan.
    fn kind(&self) -> Option<Kind> {
        match self {
            Side::Model => Some(Kind::Model),
            Side::Problem(_) => Some(Kind::Problem),
            Side::Graphs(kind, _) => Some(*kind),
            Side::Saved(_) => None,
        }
    }
}

/// A file written by `--save`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Saved {
    Model(Box<ModelPlanFile>),
    Graph(Box<SavedMemoryPlan>),
    Problem(Box<SavedPlan>),
}

/// Compares the plans of two files.
pub(super) fn run(
    (before, old): (&Path, Kind),
    (after, new): (&Path, Kind),
    arguments: &PlanArguments,
) -> Result<(), Failure> {
    let sides = (read(before, old, arguments)?, read(after, new, arguments)?);
    let files = format_args!("{} and {}", before.display(), after.display());
    arguments.given.check(files, &[sides.0.kind(), sides.1.kind()])?;
    let (old, new) = match &sides {
        (Side::Saved(old), Side::Saved(new)) => saved_pictures(old, before, new, after)?,
        (Side::Saved(saved), other) => {
            (opened(saved, before, other, after, arguments)?, pictures(other, after, arguments)?)
        }
        (other, Side::Saved(saved)) => {
            (pictures(other, before, arguments)?, opened(saved, after, other, before, arguments)?)
        }
        (old, new) => (pictures(old, before, arguments)?, pictures(new, after, arguments)?),
    };
    let pairs = pairs(&old, &new).ok_or_else(|| {
        Failure::BadInput(format!(
            "{} has {} graphs, {} has {}, and no labels match; select one of each with --graph",
            before.display(),
            old.len(),
            after.display(),
            new.len()
        ))
    })?;
    let mut printer = Printer::new();
    for (old, new) in &pairs {
        let mut difference = Difference::between(old, new);
        if difference.before == difference.after {
            difference.before.push_str(&format!(" ({})", before.display()));
            difference.after.push_str(&format!(" ({})", after.display()));
        }
        if arguments.json {
            printer.json(&difference)?;
            continue;
        }
        printer.line(&difference)?;
        for change in difference.changes.iter().take(LISTED) {
            printer.line(format_args!("  {change}"))?;
        }
        match difference.changes.len().saturating_sub(LISTED) {
            0 => {}
            more => printer.line(format_args!("  {more} more; --json lists them all"))?,
        }
    }
    if let (Some(path), Some((old, new))) = (&arguments.pictures.html, pairs.first()) {
        let named = |what: &str, file: &Path, picture: &Picture| Picture {
            title: format!("{what}: {} ({})", picture.title, file.display()),
            ..picture.clone()
        };
        let text =
            page_beside(&named("before", before, old), &named("after", after, new)).map_err(refused)?;
        write(path, &text)?;
    }
    Ok(())
}

/// Pairs graphs by label, or if no labels match, by position.
fn pairs<'a>(old: &'a [Picture], new: &'a [Picture]) -> Option<Vec<(&'a Picture, &'a Picture)>> {
    let of = |old: &'a Picture| Some((old, new.iter().find(|new| new.title == old.title)?));
    let by_label: Vec<_> = old.iter().filter_map(of).collect();
    match by_label.is_empty() {
        false => Some(by_label),
        true => (old.len() == new.len()).then(|| old.iter().zip(new).collect()),
    }
}

fn read(path: &Path, kind: Kind, arguments: &PlanArguments) -> Result<Side, Failure> {
    let input = || Input::read(path, kind);
    Ok(match kind {
        Kind::Model => Side::Model,
        Kind::Problem => Side::Problem(ProblemFile::read(&input()?)?),
        Kind::Graphs => Side::Graphs(kind, graphs::chosen(&input()?, arguments)?),
        Kind::Graph => graph_or_saved(&input()?)?,
    })
}

fn graph_or_saved(input: &Input) -> Result<Side, Failure> {
    if !is_saved(&input.text) {
        return Ok(Side::Graphs(Kind::Graph, vec![graph_file::read_own(input)?]));
    }
    let saved = serde_json::from_str(&input.text).map_err(|_| {
        Failure::BadInput(format!(
            "{}: invalid saved plan; recreate it with `orlop plan FILE --save`",
            input.name
        ))
    })?;
    Ok(Side::Saved(saved))
}

/// Whether a JSON text is a saved plan: only those have a signature, or plans.
pub(super) fn is_saved(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Signed {
        #[serde(rename = "signature", alias = "plans")]
        _signature: serde::de::IgnoredAny,
    }
    serde_json::from_str::<Signed>(text).is_ok()
}

/// The plans that `orlop plan` makes.
fn pictures(side: &Side, path: &Path, arguments: &PlanArguments) -> Result<Vec<Picture>, Failure> {
    match side {
        Side::Model => Ok(model::pictures(&PlannedModel::open(path, arguments)?, arguments)?.into()),
        Side::Problem(file) => Ok(vec![problem::picture(file, &problem::best(file, arguments)?)]),
        Side::Graphs(_, cases) => {
            let picture =
                |case| Ok(graph_picture::picture(case, &graphs::best(case, arguments)?, &case.label));
            cases.iter().map(picture).collect()
        }
        Side::Saved(_) => Ok(Vec::new()),
    }
}

/// A saved plan, opened with the graph of the other side.
fn opened(
    saved: &Saved,
    path: &Path,
    other: &Side,
    other_path: &Path,
    arguments: &PlanArguments,
) -> Result<Vec<Picture>, Failure> {
    let refused = |what: &dyn std::fmt::Display| {
        Failure::BadInput(format!(
            "{} is not a plan of {}: {what}; recreate it with `orlop plan FILE --save`",
            path.display(),
            other_path.display()
        ))
    };
    let open = |saved: &SavedMemoryPlan, usage: &Arc<orlop::alloc::Usage>| -> Result<MemoryPlan, Failure> {
        saved.clone().open(usage).map_err(|error| refused(&error))
    };
    match (other, saved) {
        (Side::Graphs(_, cases), Saved::Graph(saved)) => {
            let case = cases.iter().find(|case| case.usage.signature() == saved.signature).or(cases.first());
            let case = case.ok_or_else(|| refused(&"the file has no graph"))?;
            Ok(vec![graph_picture::picture(case, &open(saved, &case.usage)?, &case.label)])
        }
        (Side::Problem(file), Saved::Problem(saved)) => {
            let plan = SavedPlan::clone(saved).open(&file.problem).map_err(|error| refused(&error))?;
            Ok(vec![problem::picture(file, &plan)])
        }
        (Side::Model, Saved::Model(file)) => {
            let replace = |plan: &Arc<MemoryPlan>| {
                let signature = plan.usage.signature();
                match file.plans.iter().find(|saved| saved.signature == signature) {
                    Some(saved) => open(saved, &plan.usage).map(Arc::new),
                    None => Err(refused(&format_args!(
                        "it has no plan with the signature {signature} of these settings"
                    ))),
                }
            };
            let model = PlannedModel::open(other_path, arguments)?;
            Ok(pictures_with(&model::plan(&model, arguments)?, &model.name, &replace)?.into())
        }
        _ => Err(refused(&"they are plans of different kinds of files")),
    }
}

/// Two saved plans of one graph, which contain no names.
fn saved_pictures(
    old: &Saved,
    before: &Path,
    new: &Saved,
    after: &Path,
) -> Result<(Vec<Picture>, Vec<Picture>), Failure> {
    let refused =
        |what: String| Failure::BadInput(format!("{} and {}: {what}", before.display(), after.display()));
    let list = |saved: &Saved| match saved {
        Saved::Model(file) => Some(file.plans.clone()),
        Saved::Graph(saved) => Some(vec![SavedMemoryPlan::clone(saved)]),
        Saved::Problem(_) => None,
    };
    let (Some(old), Some(new)) = (list(old), list(new)) else {
        return Err(refused(
            "saved plans of a .csv contain no sizes; compare one of them with the .csv file".to_owned(),
        ));
    };
    let mut pictures = (Vec::new(), Vec::new());
    for old in &old {
        let Some(new) = new.iter().find(|new| new.signature == old.signature) else {
            return Err(refused(format!(
                "these are plans of different graphs: only one has the signature {}; compare the graph files",
                old.signature
            )));
        };
        let title = format!("graph {}", old.signature);
        pictures.0.push(Picture::of_saved(&title, old));
        pictures.1.push(Picture::of_saved(&title, new));
    }
    Ok(pictures)
}
