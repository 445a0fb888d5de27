//! The pages of `orlop plan --html` and `orlop serve` in a real browser. Pictures of them are left in `artefacts`.

mod browser;
mod chatting;
mod comparing;
mod looking;
mod many;
mod markdown;
mod served;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;
mod watching;
#[allow(dead_code)] // the tests of models need more of it
#[path = "../model/with_model.rs"]
mod with_model;
