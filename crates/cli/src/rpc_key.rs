//! The key of servers of the RPC protocol: from a file, or from the environment.

use std::path::{Path, PathBuf};

use clap::Args;
use orlop::rpc::RpcKey;

use crate::failure::Failure;

/// The variable with a key.
const VARIABLE: &str = "ORLOP_RPC_KEY";

/// Where the key is.
#[derive(Clone, Debug, Args)]
pub(crate) struct RpcKeyArgument {
    /// File with the key of RPC servers: 64 hexadecimal digits [default: the variable ORLOP_RPC_KEY]
    #[arg(long, value_name = "FILE")]
    rpc_key_file: Option<PathBuf>,
}

impl RpcKeyArgument {
    /// The key, if there is one.
    pub(crate) fn key(&self) -> Result<Option<RpcKey>, Failure> {
        match &self.rpc_key_file {
            Some(path) => in_file(path).map(Some),
            None => match std::env::var(VARIABLE) {
                Ok(text) => parse(VARIABLE, &text).map(Some),
                Err(std::env::VarError::NotPresent) => Ok(None),
                Err(std::env::VarError::NotUnicode(_)) => parse(VARIABLE, "").map(Some),
            },
        }
    }
}

fn in_file(path: &Path) -> Result<RpcKey, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        let path = path.display();
        Failure::BadInput(format!("{path}: cannot read the key ({error}); give another --rpc-key-file"))
    })?;
    parse(&path.display().to_string(), &text)
}

fn parse(place: &str, text: &str) -> Result<RpcKey, Failure> {
    let advice = "`openssl rand -hex 32` makes one";
    text.parse().map_err(|error| Failure::BadInput(format!("{place}: {error}; {advice}")))
}
