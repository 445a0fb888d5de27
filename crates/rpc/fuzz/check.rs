//! What must hold for any bytes: a message is refused, or it survives being written and read again. The fuzz target and the
//! bounded test `messages` share it.

use orlop_rpc::codec::{Dialect, RpcReply, RpcRequest};

/// Reads bytes as a version of the table, a command and its payload, once as a request and once as a reply; whether the request
/// was understood.
///
/// # Panics
/// If what is read is not what is written.
pub(crate) fn read(bytes: &[u8]) -> bool {
    let [version, command, payload @ ..] = bytes else { return false };
    let dialect = &Dialect::all()[usize::from(*version) % Dialect::all().len()];
    if let Ok(reply) = RpcReply::parse(dialect, *command, payload) {
        let mut written = Vec::new();
        reply.write(dialect, &mut written);
        assert_eq!(RpcReply::parse(dialect, *command, &written[8..]), Ok(reply));
    }
    let Ok(request) = RpcRequest::parse(dialect, *command, payload) else { return false };
    assert_eq!(request.command(), *command);
    let mut written = Vec::new();
    request.write(dialect, &mut written);
    assert_eq!(written[0], *command);
    assert_eq!(written[1..9], (written.len() as u64 - 9).to_le_bytes());
    let again = RpcRequest::parse(dialect, *command, &written[9..]);
    assert_eq!(again.as_ref(), Ok(&request));
    if let RpcRequest::Compute(graph) = &request {
        // Checked lazily, as the server does.
        let described = graph.records.iter().filter(|record| record.desc().is_ok()).count();
        assert!(described <= graph.records.len());
    }
    true
}
