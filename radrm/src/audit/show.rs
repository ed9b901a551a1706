//! The audit's result, for people and for programs.

use radrm_limits::audit::Audit;
use radrm_limits::audit::judge::{self, Finding};
use radrm_limits::scopes::user_name;
use radrm_profile::Bytes;
use radrm_text::fit;
use serde::Serialize;

use crate::{Failure, print_json};

#[derive(Serialize)]
struct Page<'a> {
    /// True if there is anything to check.
    found: bool,
    /// Memory that a process may hold beyond what is explained, bytes.
    tolerance_bytes: u64,
    processes: Vec<Row<'a>>,
    /// GPUs that could not be asked.
    silent: &'a [String],
}

#[derive(Serialize)]
struct Row<'a> {
    pid: u32,
    uid: Option<u32>,
    user: Option<String>,
    command: &'a str,
    gpu: &'a str,
    gpu_index: Option<u32>,
    /// Bytes that NVML says.
    nvml_bytes: Option<u64>,
    /// Bytes that the shim knows; absent if no shim knows the process.
    counted_bytes: Option<u64>,
    /// Process id of its job's launcher.
    job: Option<u32>,
    /// Memory that the driver itself is taken to need, bytes.
    context_bytes: u64,
    unexplained_bytes: u64,
    /// Reason that it is to be checked.
    reason: Option<&'static str>,
    explanation: Option<String>,
    /// Remedy for it.
    remedy: Option<&'static str>,
}

pub(super) fn print(audit: &Audit, json: bool) -> Result<(), Failure> {
    if json { print_json(&page(audit)) } else { crate::print(&text(audit)) }
}

fn page(audit: &Audit) -> Page<'_> {
    fn row(finding: &Finding) -> Row<'_> {
        let Finding { pid, uid, command, gpu, held, counted, context, unexplained, reason } = finding;
        Row {
            pid: *pid,
            uid: *uid,
            user: uid.and_then(user_name),
            command,
            gpu: &gpu.uuid,
            gpu_index: gpu.index,
            nvml_bytes: *held,
            counted_bytes: counted.map(|counted| counted.device + counted.managed),
            job: counted.map(|counted| counted.job).filter(|job| *job != 0),
            context_bytes: *context,
            unexplained_bytes: *unexplained,
            reason: reason.as_ref().map(|reason| reason.code()),
            explanation: reason.as_ref().map(|reason| reason.sentence()),
            remedy: reason.as_ref().map(|reason| reason.remedy()),
        }
    }
    Page {
        found: audit.found(),
        tolerance_bytes: audit.expected.tolerance,
        processes: audit.findings.iter().map(row).collect(),
        silent: &audit.silent,
    }
}

fn text(audit: &Audit) -> String {
    let mut text = String::new();
    for finding in &audit.findings {
        let Some(reason) = finding.reason.as_ref().filter(|_| finding.counts()) else { continue };
        let gpu = finding.gpu.index.map_or_else(|| finding.gpu.uuid.clone(), |index| index.to_string());
        let user = finding.uid.map(|uid| user_name(uid).unwrap_or_else(|| uid.to_string()));
        let user = user.map(|user| format!(", {user}")).unwrap_or_default();
        let command = fit(&finding.command, 100);
        text.push_str(&format!("GPU {gpu}, process {}{user}: {command}\n", finding.pid));
        let held = finding
            .held
            .map_or("an amount that NVML does not report".to_owned(), |held| Bytes(held).to_string());
        let account = match &finding.counted {
            None => format!("holds {held}"),
            Some(counted) => format!(
                "holds {held}: {} counted, {} for its context, {} unexplained",
                Bytes(counted.device + counted.managed),
                Bytes(finding.context),
                Bytes(finding.unexplained)
            ),
        };
        text.push_str(&format!("  {account}\n  {}\n  remedy: {}\n", reason.sentence(), reason.remedy()));
    }
    for silent in &audit.silent {
        text.push_str(&format!("not checked: {silent}\n"));
    }
    let found = audit.findings.iter().filter(|finding| finding.counts()).count();
    let explained = audit.findings.iter().filter(|finding| finding.reason.is_none()).count();
    let hidden = audit.findings.len() - found - explained;
    let processes =
        |count: usize| if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
    text.push_str(&match (found, explained) {
        (0, 0) if hidden > 0 => String::new(),
        (0, 0) => "no process holds GPU memory\n".to_owned(),
        (0, _) => format!("nothing found: what {} of GPUs is explained\n", hold(explained)),
        (_, 0) => format!("{} to check\n", processes(found)),
        _ => format!("{} to check, {} explained\n", processes(found), processes(explained)),
    });
    if hidden > 0 {
        text.push_str(&format!("not checked: {} of other users (root can)\n", processes(hidden)));
    }
    text.push_str(&format!(
        "explained is what the shim counted, the context ({} where it was never measured) and up to {} more\n",
        Bytes(judge::UNMEASURED_CONTEXT),
        Bytes(audit.expected.tolerance)
    ));
    text
}

fn hold(count: usize) -> String {
    if count == 1 { "1 process holds".to_owned() } else { format!("{count} processes hold") }
}
