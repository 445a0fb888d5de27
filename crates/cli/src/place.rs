//! `--place`: devices of the parts of a model.

use std::ops::Range;
use std::str::FromStr;

use orlop::llm::LayerPlacement;
use orlop::sched::Machine;

use crate::failure::Failure;
use crate::model_arguments::bad;

/// Assignments such as `layers:0..30/2=wgpu,kv=cpu`; later ones win.
#[derive(Clone, Debug)]
pub(crate) struct Places(Vec<(PlacedPart, String)>);

#[derive(Clone, Debug)]
enum PlacedPart {
    Layers(Option<Range<usize>>, usize),
    Caches,
    Input,
    Output,
}

impl FromStr for Places {
    type Err = String;

    fn from_str(text: &str) -> Result<Places, String> {
        let place = |item: &str| {
            let (what, device) =
                item.split_once('=').ok_or_else(|| format!("`{item}` has no device; {SYNTAX}"))?;
            Ok((what.parse()?, device.to_owned()))
        };
        text.split(',').map(place).collect::<Result<_, String>>().map(Places)
    }
}

const SYNTAX: &str =
    "expected layers:0..30/2=NAME, layers=NAME, kv=NAME, input=NAME or output=NAME, separated by commas";

impl FromStr for PlacedPart {
    type Err = String;

    fn from_str(text: &str) -> Result<PlacedPart, String> {
        let number = |digits: &str| {
            digits.parse::<usize>().map_err(|_| format!("`{digits}` is not a number; {SYNTAX}"))
        };
        match text {
            "layers" => Ok(PlacedPart::Layers(None, 1)),
            "kv" => Ok(PlacedPart::Caches),
            "input" => Ok(PlacedPart::Input),
            "output" => Ok(PlacedPart::Output),
            _ => {
                let unknown = || format!("`{text}` is not a part of a model; {SYNTAX}");
                let range = text.strip_prefix("layers:").ok_or_else(unknown)?;
                let (range, step) = match range.split_once('/') {
                    Some((_, "0")) => return Err(format!("`{text}` has a step of 0; {SYNTAX}")),
                    Some((range, step)) => (range, number(step)?),
                    None => (range, 1),
                };
                let (start, end) = range.split_once("..").ok_or_else(unknown)?;
                let range = number(start)?..number(end)?;
                if range.is_empty() {
                    return Err(format!("`{text}` is an empty range; {SYNTAX}"));
                }
                Ok(PlacedPart::Layers(Some(range), step))
            }
        }
    }
}

impl Places {
    /// A device for every part; the first device is the default.
    pub(crate) fn layout(&self, machine: &Machine, layers: usize) -> Result<LayerPlacement, Failure> {
        let first = machine.indices().next().unwrap_or_default();
        let mut layout = LayerPlacement::all_on(first, layers);
        for (what, device) in &self.0 {
            let device = machine.find(device).map_err(bad)?;
            match what {
                PlacedPart::Layers(Some(range), _) if range.end > layers => {
                    return Err(Failure::BadInput(format!(
                        "--place names layers {}..{}, but the model has {layers}; use a range up to {layers}",
                        range.start, range.end
                    )));
                }
                PlacedPart::Layers(range, step) => {
                    layout = layout.with_layers(range.clone().unwrap_or(0..layers), *step, device);
                }
                PlacedPart::Caches => layout.caches.fill(device),
                PlacedPart::Input => layout.input = device,
                PlacedPart::Output => layout.output = device,
            }
        }
        Ok(layout)
    }
}
