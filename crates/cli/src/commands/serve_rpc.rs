//! `orlop serve-rpc`: this machine's devices for clients of ggml's RPC protocol.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use orlop::backend::Device;
use orlop::devices::{self, DeviceOptions, physical_cores};
use orlop::rpc::codec::RpcVersion;
use orlop::rpc::{RpcAccess, RpcLimits, RpcServer, RpcServerEvent};

use crate::failure::Failure;
use crate::model_arguments::{device_options, no_device, parse_threads, remote};
use crate::printer::Printer;
use crate::quantity::parse_bytes;
use crate::rpc_key::RpcKeyArgument;
use crate::style::note;

const EXAMPLES: &str = "Examples:
  orlop serve-rpc --port 0 --memory 8GiB

orlop run --device rpc:HOST:PORT and llama.cpp's --rpc HOST:PORT use it. With a key, connections are encrypted: clients need
the same key, and only Orlop's can have one.

Exit status: 0 ended by Ctrl-C; 2 invalid arguments; 1 other errors.";

/// Arguments of `orlop serve-rpc`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeRpcArguments {
    /// Address to listen on. One that is not a loopback address needs a key, or --insecure.
    #[arg(short = 'H', long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0: any free one.
    #[arg(short, long, default_value_t = 50052)]
    port: u16,
    /// Devices to serve; see `orlop devices`.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "cpu")]
    device: Vec<String>,
    /// Number of threads of the CPU [default: number of physical cores].
    #[arg(short, long, value_parser = parse_threads)]
    threads: Option<usize>,
    /// Memory that one client may use on each device, such as `8GiB` [default: no limit].
    #[arg(short, long, value_name = "BYTES", value_parser = parse_bytes)]
    memory: Option<u64>,
    #[command(flatten)]
    rpc_key: RpcKeyArgument,
    /// Listen on an address that is not a loopback address without a key.
    #[arg(long)]
    insecure: bool,
    /// Maximum number of clients at a time.
    #[arg(long, value_name = "N", default_value_t = 8)]
    clients: usize,
    /// Print to standard error when clients connect and leave, not only when one is refused.
    #[arg(short, long)]
    verbose: bool,
    /// Protocol version that clients are told, such as 5.1.0; llama.cpp needs its own major version.
    #[arg(long, value_name = "VERSION", value_parser = parse_version, default_value_t = RpcVersion::V5_1)]
    protocol: RpcVersion,
}

/// Serves until Ctrl-C.
pub(crate) fn run(arguments: &ServeRpcArguments) -> Result<(), Failure> {
    let threads = arguments.threads.unwrap_or_else(physical_cores);
    let options = DeviceOptions { threads, ..device_options() };
    let devices = devices::named(&arguments.device, &options).map_err(no_device)?;
    let names: Vec<String> = devices.iter().map(|device| Device::name(&**device).to_owned()).collect();
    let limits = RpcLimits {
        clients: arguments.clients,
        bytes: arguments.memory.unwrap_or(u64::MAX),
        threads,
        ..RpcLimits::default()
    };
    let address = SocketAddr::new(arguments.host, arguments.port);
    let access = match arguments.rpc_key.key()? {
        Some(key) => RpcAccess::Key(key),
        None if arguments.insecure => RpcAccess::Anyone,
        None => RpcAccess::Local,
    };
    let secrecy = if matches!(access, RpcAccess::Key(_)) { ", encrypted" } else { "" };
    let server = RpcServer::bind(address, access, devices, arguments.protocol, limits).map_err(remote)?;
    let server = Arc::new(server);
    let stopped = Arc::clone(&server);
    ctrlc::set_handler(move || stopped.stop())
        .map_err(|error| Failure::Other(anyhow::anyhow!("cannot wait for signals: {error}")))?;
    let address = server.address().map_err(remote)?;
    let names = names.join(", ");
    Printer::new().line(format!("serving {names} on {address}, protocol {}{secrecy}", arguments.protocol))?;
    server.serve(&|event| match event {
        RpcServerEvent::Connected(_) | RpcServerEvent::Left(_) if !arguments.verbose => {}
        RpcServerEvent::Connected(client) => note(format_args!("{client} connected")),
        RpcServerEvent::Full(client) => note(format_args!("{client} was sent away: too many clients")),
        RpcServerEvent::Left(client) => note(format_args!("{client} left")),
        RpcServerEvent::Refused(client, refusal) => {
            note(format_args!("{client} was disconnected: {refusal}"))
        }
    });
    Ok(())
}

fn parse_version(text: &str) -> Result<RpcVersion, String> {
    let numbers: Vec<u8> = text.split('.').map_while(|number| number.parse().ok()).collect();
    let [major, minor, patch] = numbers[..] else {
        return Err("expected three numbers, such as 5.1.0".to_owned());
    };
    let version = RpcVersion { major, minor, patch };
    version.dialect().map(|_| version).map_err(|error| error.to_string())
}
