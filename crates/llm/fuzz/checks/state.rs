//! What must hold for any bytes: they are refused and change nothing, or they are loaded and survive being saved again. The
//! fuzz target and a bounded test share it.

use std::sync::Arc;

use orlop_cpu::{CpuDevice, ThreadPool};
use orlop_gguf::{GgufFile, GgufPart};
use orlop_llm::{
    Blueprint, Chat, ChatTemplate, Engine, Error, Model, SequenceId, Settings, Synth, Tokenizer,
};
use orlop_sched::Machine;

/// A small model and an empty chat with it.
///
/// # Panics
/// If the model cannot be loaded.
pub(crate) fn talk() -> (Engine, Tokenizer, Chat) {
    let synth = Synth { vocabulary: 300, layers: 1, context: 64, ..Synth::default() };
    let file = GgufPart::from_bytes(Arc::new(synth.bytes().expect("a model"))).expect("a file");
    let model = Model::from_file(GgufFile::from_file(file)).expect("a model");
    let pool = ThreadPool::new(1).expect("a thread");
    let machine = Machine::new(vec![CpuDevice::new(pool) as _]).expect("a machine");
    let blueprint = Blueprint::plan(&model, &machine, &Settings::default()).expect("a plan");
    let tokenizer = Tokenizer::from_metadata(model.file().metadata()).expect("a tokenizer");
    let chat = Chat::new(ChatTemplate::from_metadata(model.file().metadata(), &tokenizer));
    (Engine::load(blueprint, &mut |_, _| ()).expect("an engine"), tokenizer, chat)
}

/// Loads bytes as a chat and as a sequence, and checks what was loaded.
///
/// # Panics
/// If a file that is refused changes something, or one that is loaded cannot be saved.
pub(crate) fn load(engine: &mut Engine, chat: &mut Chat, bytes: &[u8]) -> Result<(), Error> {
    let shared = || Arc::new(bytes.to_vec());
    let (len, messages) = (engine.len(), chat.messages().to_vec());
    match chat.load_state_bytes(engine, shared()) {
        Ok(cached) => {
            assert_eq!(engine.len(), cached);
            let saved = chat.state_bytes(engine).expect("what is loaded can be saved");
            chat.load_state_bytes(engine, Arc::new(saved.clone())).expect("what is saved can be loaded");
            assert_eq!(chat.state_bytes(engine).expect("what is loaded can be saved"), saved);
        }
        Err(_) => {
            assert!(engine.len() == len && chat.messages() == messages, "a refused file changed the chat")
        }
    }
    let len = engine.len();
    match engine.load_sequence_bytes(SequenceId::FIRST, shared()) {
        Ok(tokens) => {
            let saved =
                engine.sequence_bytes(SequenceId::FIRST, &tokens).expect("what is loaded can be saved");
            let again = engine.load_sequence_bytes(SequenceId::FIRST, Arc::new(saved));
            assert_eq!(again.expect("what is saved can be loaded"), tokens);
            Ok(())
        }
        Err(error) => {
            assert_eq!(engine.len(), len, "a refused file changed the sequence");
            Err(error)
        }
    }
}
