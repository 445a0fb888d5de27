//! `--place`.

use std::ops::Range;
use std::str::FromStr;

use orlop::llm::LayerPlacement;
use orlop::sched::Machine;

use crate::failure::Failure;
use crate::model_arguments::bad;

/// Wishes such as `layers:0..30/2=wgpu,kv=cpu`; later ones win.
#[derive(Clone, Debug)]
pub(crate) struct Places(Vec<(What, String)>);

#[derive(Clone, Debug)]
enum What {
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
                item.split_once('=').ok_or_else(|| format!("`{item}` names no device; {HOW}"))?;
            Ok((what.parse()?, device.to_owned()))
        };
        text.split(',').map(place).collect::<Result<_, String>>().map(Places)
    }
}

const HOW: &str =
    "write layers:0..30/2=NAME, layers=NAME, kv=NAME, input=NAME or output=NAME, with commas between";

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        let number =
            |digits: &str| digits.parse::<usize>().map_err(|_| format!("`{digits}` is no number; {HOW}"));
        match text {
            "layers" => Ok(What::Layers(None, 1)),
            "kv" => Ok(What::Caches),
            "input" => Ok(What::Input),
            "output" => Ok(What::Output),
            _ => {
                let unknown = || format!("`{text}` is no part of a model; {HOW}");
                let range = text.strip_prefix("layers:").ok_or_else(unknown)?;
                let (range, step) = match range.split_once('/') {
                    Some((_, "0")) => return Err(format!("`{text}` goes on by no layer at all; {HOW}")),
                    Some((range, step)) => (range, number(step)?),
                    None => (range, 1),
                };
                let (start, end) = range.split_once("..").ok_or_else(unknown)?;
                let range = number(start)?..number(end)?;
                if range.is_empty() {
                    return Err(format!("`{text}` has no layer in it; {HOW}"));
                }
                Ok(What::Layers(Some(range), step))
            }
        }
    }
}

impl Places {
    /// A device for every part; what nobody speaks of is on the first.
    pub(crate) fn layout(&self, machine: &Machine, layers: usize) -> Result<LayerPlacement, Failure> {
        let first = machine.indices().next().unwrap_or_default();
        let mut layout = LayerPlacement::all_on(first, layers);
        for (what, device) in &self.0 {
            let device = machine.find(device).map_err(bad)?;
            match what {
                What::Layers(Some(range), _) if range.end > layers => {
                    return Err(Failure::BadInput(format!(
                        "--place speaks of the layers {}..{}, and the model has {layers}; give a range up to {layers}",
                        range.start, range.end
                    )));
                }
                What::Layers(range, step) => {
                    layout = layout.with_layers(range.clone().unwrap_or(0..layers), *step, device);
                }
                What::Caches => layout.caches.fill(device),
                What::Input => layout.input = device,
                What::Output => layout.output = device,
            }
        }
        Ok(layout)
    }
}
