//! SM partitions of protocol 3: a job's own multiprocessors on a GPU, in whole chunks.
//!
//! Partitions of a GPU do not overlap. The daemon rejects a new one where the GPU has clients without a partition, or too few
//! free chunks. A server's partitions hold for its own clients: the clients of two servers take turns.

use super::control::Control;
use super::protocol::CSV;

/// Variable by which a client gets its partition: the GPU's UUID, a slash, and the partition's id.
pub(super) const VARIABLE: &str = "CUDA_MPS_SM_PARTITION";

/// A row of `sm-partition list`.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Row {
    name: String,
    chunks: u32,
    status: String,
    id: String,
}

/// Makes a partition of this share of a GPU at most, or of all that is left of a GPU that is divided already; gives the value of
/// [`VARIABLE`].
///
/// # Errors
/// A sentence.
pub(super) fn make(
    control: &Control,
    server: &str,
    name: &str,
    gpu: &str,
    percent: Option<u8>,
) -> Result<Option<String>, String> {
    let (of, device) = (format!("--server={server}"), format!("--device={gpu}"));
    let list = || control.command(&["sm-partition", "list", &of, &device, "--all", CSV]).unwrap_or_default();
    let chunks = match percent {
        Some(percent) => {
            let devices = control.command(&["device", "list", &of, CSV]).unwrap_or_default();
            let all = chunks_of(&devices, gpu).ok_or("MPS does not list the GPU with its chunks")?;
            share_of(all, percent)
        }
        None => {
            let rows = rows(&list(), gpu);
            if !rows.iter().any(|row| row.status == "created") {
                return Ok(None);
            }
            let left = rows.iter().find(|row| row.status == "unallocated").map(|row| row.chunks);
            left.filter(|chunks| *chunks > 0).ok_or("SM partitions of other jobs take the whole GPU")?
        }
    };
    let wanted = format!("--chunks={chunks}");
    let said = control.command(&["sm-partition", "create", name, &of, &device, &wanted]);
    let found = rows(&list(), gpu).into_iter().find(|row| row.name == name && row.status == "created");
    match found {
        Some(row) => Ok(Some(format!("{gpu}/{}", row.id))),
        None => {
            delete(control, server, name, gpu);
            let said = said.unwrap_or_else(|silence| silence.to_string());
            let why = said.lines().map(str::trim).find(|line| !line.is_empty());
            Err(why.unwrap_or("the server does not run yet").to_owned())
        }
    }
}

/// Deletes a partition.
pub(super) fn delete(control: &Control, server: &str, name: &str, gpu: &str) {
    let (of, device) = (format!("--server={server}"), format!("--device={gpu}"));
    let _ = control.command(&["sm-partition", "delete", name, &of, &device]);
}

/// Deletes the partitions of one name on all GPUs.
pub(super) fn delete_everywhere(control: &Control, server: &str, name: &str) {
    let of = format!("--server={server}");
    let list = control.command(&["sm-partition", "list", &of, "--all", CSV]).unwrap_or_default();
    for line in list.lines() {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        if let [_, gpu, found, ..] = cells[..]
            && found == name
        {
            delete(control, server, name, gpu);
        }
    }
}

/// Chunks of a share: no more than it, and one at least.
fn share_of(chunks: u32, percent: u8) -> u32 {
    (chunks * u32::from(percent) / 100).max(1)
}

/// Chunks of a GPU by `device list`: ordinal, server, PCI id, UUID, name, SMs, chunks, attributes.
fn chunks_of(list: &str, gpu: &str) -> Option<u32> {
    let row = list.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
    let row = row.into_iter().find(|cells| cells.get(3) == Some(&gpu))?;
    row.get(6)?.parse().ok().filter(|chunks| *chunks > 0)
}

/// Rows of a GPU of `sm-partition list`: server, device, name, chunks, SMs, remainder, status, id.
fn rows(list: &str, gpu: &str) -> Vec<Row> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split(',').map(str::trim).collect();
        let [_, device, name, chunks, _, _, status, id] = cells[..] else { return None };
        let text = str::to_owned;
        (device == gpu).then(|| {
            Some(Row { name: text(name), chunks: chunks.parse().ok()?, status: text(status), id: text(id) })
        })?
    };
    list.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_whole_chunks_and_never_more_than_it() {
        assert_eq!((share_of(18, 50), share_of(18, 33), share_of(18, 100)), (9, 5, 18));
        assert_eq!(share_of(18, 1), 1, "one chunk at least");
    }

    #[test]
    fn lists_are_read_by_their_columns() {
        let devices =
            "0,uid_7,00000000:01:00.0,GPU-a,NVIDIA A100,108,27,-\n1,uid_7,00000000:02:00.0,GPU-b,X,132,-,-\n";
        assert_eq!((chunks_of(devices, "GPU-a"), chunks_of(devices, "GPU-b")), (Some(27), None));
        assert_eq!(chunks_of(devices, "GPU-c"), None);
        let list = "uid_7,GPU-a,run_1,4,34,false,created,Kp8A\nuid_7,GPU-b,run_1,4,34,false,created,Kp9A\n\
                    uid_7,GPU-a,-,1,8,-,unallocated,-\nnothing\n";
        let found = rows(list, "GPU-a");
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].id.as_str(), found[1].chunks, found[1].status.as_str()),
            ("Kp8A", 1, "unallocated")
        );
    }
}
