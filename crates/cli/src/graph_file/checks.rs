//! Validation of ggml graphs. Each check returns a short message.

use orlop::alloc::{ArenaId, Usage, ValueId};

use super::line::Line;

/// Limit on the sum of all sizes; prevents overflow of intermediate sums.
const MAX_BYTES: u64 = 1 << 62;

/// Checks indices of tensors and buffers, alignments, views, and the order of nodes.
pub(super) fn check(line: &Line<'_>) -> Result<(), String> {
    check_buffers(line)?;
    check_tensors(line)?;
    for (what, list) in [("leaf", &line.leaves), ("node", &line.nodes)] {
        for (index, (tensor, buffer)) in list.iter().enumerate() {
            known(&format!("{what} {index}"), *tensor, line.tensors.len())?;
            if *buffer >= line.buffers.len() {
                return Err(format!("{what} {index} names buffer {buffer} of {}", line.buffers.len()));
            }
        }
    }
    check_order(line)
}

fn known(who: &str, tensor: usize, tensors: usize) -> Result<(), String> {
    if tensor < tensors { Ok(()) } else { Err(format!("{who} names tensor {tensor} of {tensors}")) }
}

fn check_buffers(line: &Line<'_>) -> Result<(), String> {
    if line.buffers.is_empty() {
        return Err("`buffers` is empty".to_owned());
    }
    for (index, buffer) in line.buffers.iter().enumerate() {
        if !buffer.alignment.is_power_of_two() {
            let alignment = buffer.alignment;
            return Err(format!("buffer {index} has `alignment` {alignment}, which is not a power of two"));
        }
        let first = buffer.same_as;
        if first > index || line.buffers[first].same_as != first {
            return Err(format!("buffer {index} has `same_as` {first}, which is not the first of its type"));
        }
        let (this, other) = (buffer, &line.buffers[first]);
        if (this.alignment, this.max_size) != (other.alignment, other.max_size) {
            return Err(format!("buffers {first} and {index} have the same type but different limits"));
        }
    }
    Ok(())
}

fn check_tensors(line: &Line<'_>) -> Result<(), String> {
    if u32::try_from(line.tensors.len()).is_err() {
        return Err(format!("{} tensors exceed the limit of {}", line.tensors.len(), u32::MAX));
    }
    let sources: usize =
        line.nodes.iter().filter_map(|(t, _)| line.tensors.get(*t)).map(|t| t.src.len()).sum();
    if u32::try_from(sources).is_err() {
        return Err(format!("{sources} sources of nodes exceed the limit of {}", u32::MAX));
    }
    for (index, tensor) in line.tensors.iter().enumerate() {
        for source in &tensor.src {
            known(&format!("`src` of tensor {index}"), *source, line.tensors.len())?;
        }
        if tensor.view_src < -1 {
            return Err(format!("tensor {index} has `view_src` {}, below -1", tensor.view_src));
        }
        let Some(root) = tensor.view_of() else { continue };
        known(&format!("`view_src` of tensor {index}"), root, line.tensors.len())?;
        if root == index || line.tensors[root].view_src != -1 {
            return Err(format!("tensor {index} is a view of tensor {root}, which is a view itself"));
        }
        let end = tensor.view_offs.checked_add(tensor.bytes);
        match end {
            Some(end) if line.tensors[root].external || end <= line.tensors[root].bytes => {}
            Some(end) => {
                let bytes = line.tensors[root].bytes;
                return Err(format!(
                    "tensor {index} ends at byte {end} of tensor {root}, which has {bytes} bytes"
                ));
            }
            None => return Err(format!("tensor {index} ends beyond 64 bits")),
        }
    }
    Ok(())
}

/// Planned memory must be written before it is read, unless it is an input.
fn check_order(line: &Line<'_>) -> Result<(), String> {
    const NEVER: usize = usize::MAX;
    let mut written = vec![NEVER; line.tensors.len()];
    for (step, (tensor, _)) in line.nodes.iter().enumerate() {
        if written[*tensor] != NEVER {
            return Err(format!("nodes {} and {step} are both tensor {tensor}", written[*tensor]));
        }
        written[*tensor] = step;
    }
    for (step, (tensor, _)) in line.nodes.iter().enumerate() {
        check_marker(line, step, *tensor)?;
        for source in &line.tensors[*tensor].src {
            let root = line.tensors[*source].view_of().unwrap_or(*source);
            if !line.tensors[root].external && written[root] != NEVER && written[root] > step {
                return Err(format!(
                    "node {step} reads tensor {source}, which node {} writes",
                    written[root]
                ));
            }
        }
    }
    Ok(())
}

/// A marker extends the lifetime of its view's root, and of nothing else.
fn check_marker(line: &Line<'_>, step: usize, tensor: usize) -> Result<(), String> {
    let marker = &line.tensors[tensor];
    let Some(root) = marker.view_of().filter(|root| marker.is_marker() && !line.tensors[*root].external)
    else {
        return Ok(());
    };
    match marker.src[..] {
        [source] if line.tensors[source].view_of().unwrap_or(source) == root => Ok(()),
        _ => Err(format!("node {step} is a marker of tensor {root}, which is not its only source")),
    }
}

/// Checks the sum of all sizes, rounded up.
pub(super) fn check_sizes(usage: &Usage) -> Result<(), String> {
    let mut sum = 0u64;
    for (index, value) in usage.values().iter().enumerate() {
        let id = ValueId::new(index);
        if value.root != id || value.flags.external {
            continue;
        }
        let largest = (0..usage.arenas.len()).map(|arena| usage.rounded_bytes(id, ArenaId::new(arena))).max();
        sum = sum.saturating_add(largest.unwrap_or(0));
        if sum > MAX_BYTES {
            return Err(format!(
                "the sum of sizes is more than 2^62 bytes at tensor {index} (`{}`)",
                usage.name(id)
            ));
        }
    }
    Ok(())
}
