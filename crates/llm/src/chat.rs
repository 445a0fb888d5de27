//! Chats: messages become a prompt by the model's template, and the answer becomes a message. The engine keeps the tokens
//! of earlier turns in its cache, so only new ones are processed.

use std::ops::ControlFlow;

mod saved;
mod saved_message;

use crate::sampling::Sampler;
use crate::{
    ChatPrompt, ChatTemplate, DraftCounts, End, Engine, Error, GenerateEvent, GenerateOptions,
    GrammarMatcher, Message, Special, Speculator, StopText, TemplateSource, TextStream, Tokenizer,
    generate_with,
};

/// A conversation with a model. What the engine's cache holds of it is kept from turn to turn, so only new tokens are
/// processed.
#[derive(Debug)]
pub struct Chat {
    template: ChatTemplate,
    messages: Vec<Message>,
    /// The conversation so far as the model saw it, up to the end of its last answer.
    text: String,
    /// The tokens of that text. The engine's cache holds the first of them.
    tokens: Vec<u32>,
    /// Where answers begin and end.
    seams: Vec<Seam>,
    speculator: Option<Speculator>,
    /// What each answer has to match, before its first token.
    grammar: Option<GrammarMatcher>,
    fault: Option<Error>,
}

/// A place where text and tokens both can be cut.
#[derive(Clone, Copy, Debug, Default)]
struct Seam {
    bytes: usize,
    tokens: usize,
}

/// What [`Chat::answer`] reports while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChatEvent<'a> {
    /// How many of the new tokens are processed; first none.
    Prompt {
        /// Processed.
        done: usize,
        /// All of them.
        all: usize,
    },
    /// More of the answer.
    Text(&'a str),
}

/// How a turn went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Tokens of the conversation that were in the cache already.
    pub kept: usize,
    /// Tokens that were processed before the answer began.
    pub fed: usize,
    /// Tokens of the answer, one that ends it included.
    pub answered: usize,
    /// Tokens that were drafted, and accepted ones among those of the answer.
    pub drafts: DraftCounts,
    /// How it came to its end.
    pub end: End,
}

/// Ends an answer in the plain form, unless the model ends it before.
const PLAIN_MARK: &str = "\nUser:";

impl Chat {
    /// An empty conversation.
    pub fn new(template: ChatTemplate) -> Chat {
        let (messages, tokens, seams) = (Vec::new(), Vec::new(), Vec::new());
        let (speculator, grammar, fault) = (None, None, None);
        Chat { template, messages, text: String::new(), tokens, seams, speculator, grammar, fault }
    }

    /// Begins with a system message; before anything else is said.
    #[must_use]
    pub fn with_system(mut self, content: impl Into<String>) -> Chat {
        self.messages.insert(0, Message::new("system", content));
        self
    }

    /// Answers with speculative decoding: the same ones, sooner where drafts are accepted.
    #[must_use]
    pub fn with_speculator(mut self, speculator: Option<Speculator>) -> Chat {
        self.speculator = speculator;
        self
    }

    /// Each answer has to match a grammar; the matcher has accepted no token.
    #[must_use]
    pub fn with_grammar(mut self, grammar: Option<GrammarMatcher>) -> Chat {
        self.grammar = grammar;
        self
    }

    /// What drafts the answers.
    pub fn speculator(&self) -> Option<&Speculator> {
        self.speculator.as_ref()
    }

    /// All messages.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Turns that were taken or begun.
    pub fn turns(&self) -> usize {
        self.messages.iter().filter(|message| message.role == "user").count()
    }

    /// Where the form of the conversation comes from.
    pub fn source(&self) -> TemplateSource {
        if self.fault.is_some() { TemplateSource::Broken } else { self.template.source() }
    }

    /// What is wrong with the model's template, if something is: the plain form is used then.
    pub fn fault(&self) -> Option<&Error> {
        self.fault.as_ref().or(self.template.fault())
    }

    /// Forgets all messages but those of the system.
    pub fn reset(&mut self) {
        self.messages.retain(|message| message.role == "system");
    }

    /// Forgets the oldest turns.
    pub fn drop_turns(&mut self, count: usize) {
        self.messages = self.without_turns(count);
    }

    fn without_turns(&self, count: usize) -> Vec<Message> {
        let mut seen = 0;
        let stays = |message: &&Message| {
            seen += usize::from(message.role == "user");
            message.role == "system" || seen > count
        };
        self.messages.iter().filter(stays).cloned().collect()
    }

    /// Adds a message of the user; [`Chat::answer`] is next.
    pub fn say(&mut self, content: impl Into<String>) {
        self.messages.push(Message::new("user", content));
    }

    /// Takes back the user's last message, if it is not answered.
    pub fn withdraw(&mut self) -> Option<String> {
        let last = self.messages.pop_if(|message| message.role == "user");
        last.map(|message| message.content.text().into_owned())
    }

    /// Takes back the last answer, so that [`Chat::answer`] gives another.
    pub fn withdraw_answer(&mut self) -> Option<String> {
        let last = self.messages.pop_if(|message| message.role == "assistant");
        last.map(|message| message.content.text().into_owned())
    }

    /// The tokens that the model sees before its next answer.
    pub fn prompt(&mut self, tokenizer: &Tokenizer) -> Vec<u32> {
        let text = self.render(ChatPrompt::Answer);
        self.tokens_of(tokenizer, &text)
    }

    /// How many of the oldest turns have to go for the rest and an answer of `room` tokens to fit a context; `None` if
    /// the last one alone does not fit.
    pub fn turns_over(&self, tokenizer: &Tokenizer, context: u64, room: u64) -> Option<usize> {
        let fits = |count: usize, room: u64| {
            let messages = self.without_turns(count);
            let text = self.form(&messages, ChatPrompt::Answer);
            let text = text.unwrap_or_else(|_| self.template.render_plain(&messages, ChatPrompt::Answer));
            (tokenizer.chat(&text).len() as u64).saturating_add(room) <= context
        };
        let turns = self.turns();
        let count = (0..turns).find(|count| fits(*count, room));
        // The last turn may leave less room than was wished for.
        count.or_else(|| (turns > 0 && fits(turns - 1, 1)).then(|| turns - 1))
    }

    /// The model's answer to the last message. `heard` gets progress and text, and may stop it; so may the engine's
    /// switch. An answer that is stopped counts as far as it came.
    ///
    /// # Errors
    /// [`Error::ContextFull`] if the conversation is too long, and as [`Engine::feed`]: there is no answer then, and the
    /// last message still waits for one.
    pub fn answer(
        &mut self,
        engine: &mut Engine,
        tokenizer: &Tokenizer,
        sampler: &mut Sampler,
        limit: Option<usize>,
        heard: &mut dyn FnMut(ChatEvent<'_>) -> ControlFlow<()>,
    ) -> Result<Turn, Error> {
        let text = self.render(ChatPrompt::Answer);
        let tokens = self.tokens_of(tokenizer, &text);
        let context = engine.blueprint().context();
        if tokens.len() as u64 > context {
            return Err(Error::ContextFull { tokens: tokens.len(), context, used: 0 });
        }
        let common = tokens.iter().zip(&self.tokens).take_while(|(new, old)| new == old).count();
        // The last token is always processed, as the answer begins with its logits.
        engine.truncate(common.min(engine.len()).min(tokens.len().saturating_sub(1)));
        let kept = engine.len();
        let Seam { bytes, .. } = self.last_seam(&text);
        self.seams.retain(|seam| seam.bytes <= bytes && seam.tokens <= common);
        self.seams.push(Seam { bytes: text.len(), tokens: tokens.len() });
        (self.text, self.tokens) = (text, tokens);
        let new = &self.tokens[kept..];
        let drafts = DraftCounts::default();
        let mut turn = Turn { kept, fed: new.len(), answered: 0, drafts, end: End::Stopped };
        sampler.restart(&self.tokens[..kept]);
        let mark = if self.source() == TemplateSource::File { "" } else { PLAIN_MARK };
        let mut speculator = self.speculator.as_mut();
        let before = speculator.as_ref().map_or(drafts, |speculator| speculator.counts());
        if let Some(speculator) = &mut speculator {
            speculator.restart(&self.tokens[..kept]);
        }
        let (mut bytes, mut stop) = (TextStream::new(), StopText::new([mark]));
        let (mut raw, mut content, mut answer) = (String::new(), String::new(), Vec::new());
        let mut grammar = self.grammar.clone();
        let options = GenerateOptions { limit, speculator, grammar: grammar.as_mut() };
        turn.end = generate_with(engine, tokenizer, sampler, new, options, &mut |event| {
            let token = match event {
                GenerateEvent::Prompt { done, all, .. } => return heard(ChatEvent::Prompt { done, all }),
                GenerateEvent::Token(token) => token,
            };
            turn.answered += 1;
            if tokenizer.is_end(token) {
                return ControlFlow::Continue(());
            }
            answer.push(token);
            let piece = bytes.push(tokenizer.decode(token));
            raw.push_str(piece);
            let piece = stop.push(piece);
            content.push_str(piece);
            let flow =
                if piece.is_empty() { ControlFlow::Continue(()) } else { heard(ChatEvent::Text(piece)) };
            if stop.is_stopped() { ControlFlow::Break(()) } else { flow }
        })?;
        turn.drafts = self.speculator.as_ref().map_or(drafts, |speculator| speculator.counts() - before);
        self.tokens.extend(answer);
        if stop.is_stopped() {
            turn.end = End::Token;
        }
        let rest = bytes.finish();
        raw.push_str(rest);
        for piece in [stop.push(rest).to_owned(), stop.finish().to_owned()] {
            content.push_str(&piece);
            if !piece.is_empty() {
                let _ = heard(ChatEvent::Text(&piece));
            }
        }
        self.text.push_str(&raw);
        self.seams.push(Seam { bytes: self.text.len(), tokens: self.tokens.len() });
        self.keep(content);
        Ok(turn)
    }

    /// Adds an answer, trimmed if the template trims answers, so that the next prompt begins with what the model saw. A
    /// template may refuse a conversation that ends with an answer, because it is never rendered: the answer then stays
    /// as it is.
    fn keep(&mut self, content: String) {
        let trimmed = content.trim().to_owned();
        self.messages.push(Message::new("assistant", content));
        if self.form(&self.messages, ChatPrompt::Nothing).is_ok_and(|text| !text.starts_with(&self.text))
            && let Some(last) = self.messages.last_mut()
        {
            last.content = trimmed.into();
        }
    }

    /// The tokens of a text. Those that the model has seen or made are kept, because tokenizing the text again could
    /// give others.
    fn tokens_of(&self, tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
        let Seam { bytes, tokens } = self.last_seam(text);
        let tail = &text[bytes..];
        if tokens == 0 {
            return tokenizer.chat(text);
        }
        let new = tokenizer.encode(tail, Special::Parse);
        let spells =
            |ids: &[u32]| ids.iter().flat_map(|id| tokenizer.decode_special(*id)).eq(tail.as_bytes());
        // Some tokenizers put a space before the beginning of a text.
        let new = match new.as_slice() {
            ids @ [first, ..] if tokenizer.is_control(*first) => ids,
            ids if spells(ids) => ids,
            [_, ids @ ..] if spells(ids) => ids,
            _ => return tokenizer.chat(text),
        };
        [&self.tokens[..tokens], new].concat()
    }

    /// The last seam up to which a text is the one that the model saw.
    fn last_seam(&self, text: &str) -> Seam {
        let same = text.bytes().zip(self.text.bytes()).take_while(|(new, old)| new == old).count();
        self.seams.iter().rfind(|seam| seam.bytes <= same).copied().unwrap_or_default()
    }

    /// The conversation as text. A template that fails over it is given up for the plain form.
    fn render(&mut self, prompt: ChatPrompt) -> String {
        let text = self.form(&self.messages, prompt);
        text.unwrap_or_else(|error| {
            self.fault = Some(error);
            self.template.render_plain(&self.messages, prompt)
        })
    }

    /// Messages as text: by the model's template, or in the plain form if that was given up.
    fn form(&self, messages: &[Message], prompt: ChatPrompt) -> Result<String, Error> {
        if self.fault.is_some() {
            return Ok(self.template.render_plain(messages, prompt));
        }
        let text = self.template.render(messages, &prompt.into());
        text.or_else(|error| self.form_folded(messages, prompt).ok_or(error))
    }

    /// Some templates have no system role: its message goes before the user's first message.
    fn form_folded(&self, messages: &[Message], prompt: ChatPrompt) -> Option<String> {
        let (system, rest) = messages.split_first().filter(|(first, _)| first.role == "system")?;
        let mut rest = rest.to_vec();
        let first = rest.first_mut()?;
        first.content = format!("{}\n\n{}", system.content.text(), first.content.text()).into();
        self.template.render(&rest, &prompt.into()).ok()
    }
}
