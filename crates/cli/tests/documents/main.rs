//! The documents: what they print is what the command prints, what they link to exists, and they stay short.
//!
//! - Every ```` ```console ```` block is run, in all documents. A line that begins with `$ ` is a command; the lines after
//!   it are its output, standard error included. Times, speeds and what limits them are compared as `#`, runs of spaces as
//!   one space, and a line `...` stands for any number of lines. Commands of one document share a folder, in which
//!   `examples` is the repository's.
//! - Lines of ```` ```sh ```` blocks are not run: they build something, take long, or (with `gpu` behind the language)
//!   need a GPU or another machine. Their `orlop` commands are checked against the command's arguments.
//! - Blocks of ```` ```rust ```` are documentation tests of the crate `orlop`.

mod consoles;
mod limits;
mod links;
mod markdown;
mod names;
mod paths;
mod reference;
mod shell;
#[allow(dead_code)] // the tests of `orlop plan` need more of it
#[path = "../plan/support.rs"]
mod support;
#[allow(dead_code)] // the tests of models need more of it
#[path = "../model/with_model.rs"]
mod with_model;
