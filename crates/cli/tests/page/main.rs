//! The page of `orlop plan --html` in a real browser. Pictures of it are left in `artefacts`.

mod browser;
mod comparing;
mod looking;
mod many;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;
#[allow(dead_code)] // the tests of models need more of it
#[path = "../model/with_model.rs"]
mod with_model;
