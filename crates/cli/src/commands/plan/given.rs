//! Which options are about which files.

use std::fmt::Display;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use crate::arguments::PlanArguments;
use crate::failure::Failure;
use crate::input::Kind;
use crate::model_arguments::SettingArguments;

/// The options that were written, by their ids. It has to be read before the others, as reading takes them away.
#[derive(Debug)]
pub(crate) struct Given(Vec<String>);

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Given, Error> {
        let written = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        Ok(Given(matches.ids().filter(written).map(ToString::to_string).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl Given {
    /// Refuses what says nothing about any of these; `None` stands for a saved plan, which is not planned again.
    pub(super) fn check(&self, files: impl Display, kinds: &[Option<Kind>]) -> Result<(), Failure> {
        let command = PlanArguments::augment_args(Command::new("plan"));
        let settings = SettingArguments::augment_args(Command::new("plan"));
        for option in command.get_arguments().filter(|option| self.0.iter().any(|id| option.get_id() == id)) {
            let id = option.get_id().as_str();
            let is_setting = settings.get_arguments().any(|setting| setting.get_id() == id);
            let applies = |kind: &Kind| match id {
                "reorder" => *kind != Kind::Problem,
                "graph" => *kind == Kind::Graphs,
                "output" | "strategy" | "capacity" | "effort" | "time_limit" => *kind != Kind::Model,
                _ => !is_setting || *kind == Kind::Model,
            };
            let right: Vec<&str> = Kind::ALL.iter().filter(|kind| applies(kind)).map(Kind::plural).collect();
            if right.len() == Kind::ALL.len() || kinds.iter().flatten().any(applies) {
                continue;
            }
            let wrong: Vec<&str> =
                kinds.iter().map(|kind| kind.as_ref().map_or("saved plans", Kind::plural)).collect();
            return Err(Failure::BadInput(format!(
                "{files}: --{} is for {}, not for {}; leave it out",
                option.get_long().unwrap_or(id),
                right.join(" and "),
                wrong.join(" or ")
            )));
        }
        Ok(())
    }
}
