//! Tokens that are known by their text, because files often do not say what they are for.

/// What a token of a known text is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Purpose {
    /// It ends a turn of a chat; of several, the lowest number is the one in use.
    EndOfTurn(u8),
    /// It ends generation in another way.
    End,
    /// It controls the model.
    Control,
}

/// The purpose of a token, if its text is one of those known.
pub(super) fn purpose(text: &[u8]) -> Option<Purpose> {
    // Nearly all tokens return here.
    if !matches!(text.first(), Some(b'<' | b'[' | b'_' | 0xe2)) {
        return None;
    }
    let text = std::str::from_utf8(text).ok()?;
    Some(match text {
        "<|eot_id|>" => Purpose::EndOfTurn(0),
        "<|im_end|>" => Purpose::EndOfTurn(1),
        "<|end|>" => Purpose::EndOfTurn(2),
        "<end_of_turn>" | "<turn|>" => Purpose::EndOfTurn(3),
        "<end_of_utterance>" => Purpose::EndOfTurn(4),
        "<EOT>" | "_<EOT>" | "▁<EOT>" | "[EOT]" => Purpose::EndOfTurn(5),
        "<|end_of_text|>" | "<|endoftext|>" | "<｜end▁of▁sentence｜>" => Purpose::EndOfTurn(6),
        "<|eom_id|>" | "<|return|>" | "<|call|>" | "<|flush|>" | "<|calls|>" => Purpose::End,
        "<|tool_response>" | "[EOS]" | "<eos>" | "</s>" | "[e~[" => Purpose::End,
        "<|fim_pad|>" | "<fim-pad>" | "<fim_pad>" | "<PAD>" | "[PAD]" => Purpose::End,
        "<|fim_repo|>" | "<|repo_name|>" | "<fim-repo>" | "<REPO>" | "<reponame>" => Purpose::End,
        "<|file_sep|>" => Purpose::End,
        "<|fim_prefix|>" | "<fim-prefix>" | "<fim_prefix>" | "<PRE>" | "▁<PRE>" => Purpose::Control,
        "<|fim_suffix|>" | "<fim-suffix>" | "<fim_suffix>" | "<SUF>" | "▁<SUF>" => Purpose::Control,
        "<|fim_middle|>" | "<fim-middle>" | "<fim_middle>" | "<MID>" | "▁<MID>" => Purpose::Control,
        "<|code_prefix|>" | "<|code_suffix|>" | "<|code_middle|>" => Purpose::Control,
        "<|prefix|>" | "<|suffix|>" | "<|middle|>" => Purpose::Control,
        "<｜fim▁begin｜>" | "<｜fim▁hole｜>" | "<｜fim▁end｜>" => Purpose::Control,
        _ => return None,
    })
}
