//! `orlop run` without a prompt on a terminal: a chat.

mod answer;
mod command;
mod editor;
mod interrupt;
mod save;
mod state;

use std::sync::Arc;

use orlop::gguf::Metadata;
use orlop::llm::{Chat, Error, Sampler, TemplateSource, Tokenizer};

use crate::commands::run::RunArguments;
use crate::failure::Failure;
use crate::load::{Loaded, failure, load_with_drafts, memory, repack, tokenizer};
use crate::memory_table;
use crate::printer::Printer;
use crate::style::note;
use command::Command;
use editor::{Editor, Line};
use interrupt::Interrupt;

/// A running chat.
struct Session {
    loaded: Loaded,
    tokenizer: Arc<Tokenizer>,
    sampler: Sampler,
    chat: Chat,
    limit: Option<usize>,
    verbose: bool,
    interrupt: Interrupt,
    /// The note about the generic template was printed.
    warned: bool,
}

/// What follows a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Line,
    End,
}

/// Chats until the user quits.
pub(crate) fn run(arguments: &RunArguments) -> Result<(), Failure> {
    let stats = arguments.expert_stats.begin()?;
    let loaded = load_with_drafts(&stats.counting(&arguments.model), &arguments.draft)?;
    stats.check(loaded.model.config())?;
    converse(arguments, loaded)?;
    stats.finish()
}

fn converse(arguments: &RunArguments, mut loaded: Loaded) -> Result<(), Failure> {
    repack(&mut loaded)?;
    let tokenizer = Arc::new(tokenizer(&loaded.model)?);
    let grammar = arguments.grammar.matcher(&tokenizer)?;
    let chat = arguments.chat(&loaded.model, &tokenizer).with_grammar(grammar);
    let mut session = Session {
        chat: chat.with_speculator(loaded.speculator.take()),
        sampler: arguments.sampler(&loaded.model)?,
        limit: arguments.limit(),
        verbose: arguments.model.verbose,
        interrupt: Interrupt::install()?,
        warned: false,
        loaded,
        tokenizer,
    };
    session.greet();
    let mut editor = Editor::open()?;
    let mut leaving = false;
    loop {
        match editor.read()? {
            Line::End => return Ok(()),
            Line::Interrupted if leaving => return Ok(()),
            Line::Interrupted => {
                note("Ctrl-C again, Ctrl-D or /quit ends the chat");
                leaving = true;
                continue;
            }
            Line::NotText => note("ignored: not UTF-8; check the terminal's encoding"),
            Line::Text(line) => {
                if session.take(&line, &mut editor)? == Next::End {
                    return Ok(());
                }
            }
        }
        leaving = false;
    }
}

impl Session {
    fn greet(&mut self) {
        let metadata = self.loaded.model.file().metadata();
        let name = metadata.optional("general.name", Metadata::text).ok().flatten();
        let name = name.map_or("this model".into(), |name| name.to_str_lossy());
        let context = self.loaded.engine.blueprint().context();
        note(format_args!(
            "chat with {name}, context of {context} tokens; /help lists commands, Ctrl-D quits"
        ));
        self.warn();
    }

    /// Notes once that the model's chat template is not used.
    fn warn(&mut self) {
        let what = match (self.chat.source(), self.chat.fault()) {
            (TemplateSource::File, _) => return,
            (_, Some(fault)) => fault.to_string(),
            (_, None) => "the model has no chat template".to_owned(),
        };
        if !std::mem::replace(&mut self.warned, true) {
            note(format_args!("orlop: {what}; using a generic template (User: ... Assistant: ...)"));
        }
    }

    /// Handles a line of input.
    fn take(&mut self, line: &str, editor: &mut Editor) -> Result<Next, Failure> {
        if line.trim().is_empty() {
            return Ok(Next::Line);
        }
        match Command::parse(line) {
            None => {
                self.chat.say(line.trim());
                self.converse(editor)?;
            }
            Some(Err(refusal)) => note(refusal),
            Some(Ok(Command::Quit)) => return Ok(Next::End),
            Some(Ok(Command::Help)) => Printer::new().line(command::help())?,
            Some(Ok(Command::Reset)) => {
                self.chat.reset();
                note("chat cleared");
            }
            Some(Ok(Command::Memory)) => self.memory()?,
            Some(Ok(Command::Save(path))) => match save::save(self.chat.messages(), &path) {
                Ok(()) => note(format_args!("chat saved to {}", path.display())),
                Err(refusal) => note(refusal),
            },
            Some(Ok(Command::SaveState(path))) => note(self.save_state(&path)),
            Some(Ok(Command::LoadState(path))) => note(self.load_state(&path)?),
            Some(Ok(Command::Again)) => match self.chat.withdraw_answer() {
                Some(_) => self.converse(editor)?,
                None => note("no answer to regenerate yet; write a message first"),
            },
        }
        Ok(Next::Line)
    }

    /// Answers the last message; if the context is full, asks whether to drop the oldest turns.
    fn converse(&mut self, editor: &mut Editor) -> Result<(), Failure> {
        loop {
            let (needed, context) = match self.answer() {
                Ok(()) => return Ok(()),
                Err(answer::AnswerError::Failure(failure)) => return Err(failure),
                Err(answer::AnswerError::Stopped) => {
                    self.chat.withdraw();
                    note("stopped; the last message is withdrawn");
                    return Ok(());
                }
                Err(answer::AnswerError::Model(Error::ContextFull { tokens, context, .. })) => {
                    (tokens, context)
                }
                Err(answer::AnswerError::Model(error)) => return Err(failure(error)),
            };
            let full = format!("the chat has {needed} tokens and exceeds the context of {context}");
            let Some(count) = self.chat.turns_over(&self.tokenizer, context, context / 4) else {
                note(format_args!("{full}; write a shorter message, or use a larger context (-c)"));
                self.chat.withdraw();
                return Ok(());
            };
            let turns =
                if count == 1 { "the oldest turn".to_owned() } else { format!("the {count} oldest turns") };
            note(full);
            if !editor.confirms(&format!("drop {turns} and continue? [Y/n] "))? {
                note("the last message is withdrawn; /reset clears the chat, -c sets a larger context");
                self.chat.withdraw();
                return Ok(());
            }
            self.chat.drop_turns(count);
        }
    }

    fn memory(&self) -> Result<(), Failure> {
        let engine = &self.loaded.engine;
        let (used, context) = (engine.len(), engine.blueprint().context());
        let mut printer = Printer::new();
        printer.line(memory_table::table(&memory(engine, self.chat.speculator())))?;
        let turns = match self.chat.turns() {
            1 => "1 turn".to_owned(),
            count => format!("{count} turns"),
        };
        printer.line(format!("context: {used} of {context} tokens used by {turns}"))
    }
}
