//! A model and a draft model on the same devices.

use orlop_sched::{Machine, largest_fitting};

use super::batch::BatchSpeculator;
use super::vocabulary::check_vocabulary;
use crate::blueprint::check_rewinds;
use crate::{Blueprint, Error, Forecast, LayerChoice, Model, Settings};

/// A model and its draft model, planned together: the draft model goes where it fits first, because every run of the model
/// needs several of its runs, and the model gets the memory that is left.
#[derive(Clone, Debug)]
pub struct PairBlueprint {
    /// The model.
    pub model: Blueprint,
    /// The draft model, with the same context.
    pub draft: Blueprint,
}

impl PairBlueprint {
    /// As [`Blueprint::plan`]. The settings are those of the model; the draft model has the same, but no drafts of its own and
    /// no saved plans, and as many of its layers as fit are on the first device. Where the model has one sequence, it has one,
    /// too, else those of a [`BatchSpeculator`].
    ///
    /// # Errors
    /// [`Error::OtherVocabulary`], [`Error::CannotRewind`]; [`Error::DoesNotFit`] with what both need; and as
    /// [`Blueprint::plan`].
    pub fn plan(
        model: &Model,
        draft: &Model,
        machine: &Machine,
        settings: &Settings,
    ) -> Result<PairBlueprint, Error> {
        let pair = PairBlueprint::plan_unchecked(model, draft, machine, settings)?;
        pair.model.check_plans()?;
        let forecast = pair.forecast()?;
        let Some(short) = forecast.devices.iter().find(|share| !share.fits()) else { return Ok(pair) };
        Err(Error::DoesNotFit {
            context: pair.model.context(),
            device: short.name.clone(),
            needed: short.total(),
            available: short.free.unwrap_or(u64::MAX),
            largest: pair.largest_context()?,
            divided: pair.model.most_layers()?,
        })
    }

    /// As [`PairBlueprint::plan`], but models that do not fit with any context are planned all the same;
    /// [`PairBlueprint::forecast`] says so.
    ///
    /// # Errors
    /// As [`PairBlueprint::plan`], but for [`Error::DoesNotFit`].
    pub fn plan_unchecked(
        model: &Model,
        draft: &Model,
        machine: &Machine,
        settings: &Settings,
    ) -> Result<PairBlueprint, Error> {
        check_vocabulary(model, draft)?;
        check_rewinds(model)?;
        check_rewinds(draft)?;
        let at = |context| PairBlueprint::at(model, draft, machine, settings, context);
        if let Some(context) = settings.context {
            return at(context);
        }
        // What fits without the draft model.
        let most = Blueprint::plan_unchecked(model, machine, settings)?.context();
        let pair = at(most)?;
        if pair.forecast()?.fits() {
            return Ok(pair);
        }
        match pair.largest_context_within(most - 1)? {
            Some(context) => at(context),
            None => Ok(pair),
        }
    }

    fn at(
        model: &Model,
        draft: &Model,
        machine: &Machine,
        settings: &Settings,
        context: u64,
    ) -> Result<PairBlueprint, Error> {
        let settings = Settings { context: Some(context), ..settings.clone() };
        let (plans, layout) = ([].into(), LayerChoice::fastest());
        let draft_settings = Settings {
            plans,
            layout,
            draft: 0,
            sequences: BatchSpeculator::draft_sequences(settings.sequences),
            expert_counter: None,
            expert_counts: None,
            ..settings.clone()
        };
        let draft = Blueprint::plan_unchecked(draft, machine, &draft_settings)?;
        let mut left = settings.budgets.clone();
        for (device, share) in machine.indices().zip(draft.forecast()?.devices) {
            if let Some(free) = share.free {
                left.insert(device, free.saturating_sub(share.total()));
            }
        }
        let model = Blueprint::plan_unchecked(model, machine, &Settings { budgets: left, ..settings })?;
        Ok(PairBlueprint { model, draft })
    }

    /// What both take on each device, to the byte.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn forecast(&self) -> Result<Forecast, Error> {
        self.forecast_with(&self.model)
    }

    /// [`PairBlueprint::forecast`] with the model planned in another way.
    ///
    /// # Errors
    /// What devices refuse.
    pub fn forecast_with(&self, model: &Blueprint) -> Result<Forecast, Error> {
        let (mut forecast, draft) = (model.forecast()?, self.draft.forecast()?);
        for (share, draft) in forecast.devices.iter_mut().zip(&draft.devices) {
            // The model's is what the draft model leaves.
            share.free = draft.free;
        }
        Ok(forecast.with(&draft))
    }

    /// The largest context that fits for both, as [`Blueprint::largest_context`].
    ///
    /// # Errors
    /// What devices refuse.
    pub fn largest_context(&self) -> Result<Option<u64>, Error> {
        self.largest_context_within(self.model.trained_context().max(self.model.context()))
    }

    fn largest_context_within(&self, most: u64) -> Result<Option<u64>, Error> {
        let PairBlueprint { model, draft } = self;
        let settings = Settings { budgets: draft.settings.budgets.clone(), ..model.settings.clone() };
        let fits = |context| {
            let pair = PairBlueprint::at(&model.model, &draft.model, &model.machine, &settings, context)?;
            Ok::<_, Error>(pair.forecast()?.fits())
        };
        largest_fitting(1..=most, fits)
    }
}
