//! `radrm doctor`: what works on this machine, what does not, and what to do about it.

mod checks;

use std::io::IsTerminal;

use radrm_launcher::layout::text_options;
use radrm_text::output::width;
use radrm_text::{Paint, Table, left};
use serde::Serialize;

use crate::Failure;

/// Status of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It works.
    Ok,
    /// Something is not there that not everybody needs.
    Info,
    /// A part of what RADRM does will be missing.
    Warning,
    /// Programs cannot be recorded here.
    Failure,
}

impl Status {
    fn word(self) -> &'static str {
        match self {
            Status::Ok => "ok",
            Status::Info => "-",
            Status::Warning => "warning",
            Status::Failure => "FAILS",
        }
    }
}

/// One check.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// Subject of the check.
    pub subject: &'static str,
    /// Status of the check.
    pub status: Status,
    /// Description of what was found.
    pub found: String,
    /// Next step for the user, if there is anything to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

impl Finding {
    fn new(subject: &'static str, status: Status, found: impl Into<String>) -> Self {
        Self { subject, status, found: found.into(), remedy: None }
    }

    fn remedy(self, text: impl Into<String>) -> Self {
        Self { remedy: Some(text.into()), ..self }
    }
}

/// Makes all checks and prints them. The exit code is 1 if one fails.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(json: bool) -> Result<u8, Failure> {
    let findings = checks::all();
    if json {
        crate::print_json(&serde_json::json!({ "schema": 1, "checks": findings }))?;
    } else {
        let out = std::io::stdout();
        let options = text_options(out.is_terminal(), width(&out), false, None);
        crate::print(&text(&findings, options.color))?;
    }
    Ok(u8::from(findings.iter().any(|finding| finding.status == Status::Failure)))
}

fn text(findings: &[Finding], color: bool) -> String {
    let paint = Paint { color };
    let mut table = Table::new([left(""), left(""), left("")]);
    for Finding { subject, status, found, remedy } in findings {
        table.row([status.word(), subject, found.as_str()]);
        if let Some(remedy) = remedy {
            table.row(["", "", &format!("-> {remedy}")]);
        }
    }
    let worst = findings.iter().map(|finding| finding.status).max().unwrap_or(Status::Ok);
    let verdict = match worst {
        Status::Ok | Status::Info => paint.good("radrm-run records GPU programs here."),
        Status::Warning => paint.warn("radrm-run records GPU programs here, but not everything about them."),
        Status::Failure => paint.bad("radrm-run cannot record GPU programs here."),
    };
    let rows = table.to_string();
    let rows = rows.trim_start_matches([' ', '\n']);
    format!("{rows}\n{verdict}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_each_check_its_remedy_and_the_verdict() {
        let findings = [
            Finding::new("shim", Status::Ok, "/usr/lib/radrm/libradrm.so"),
            Finding::new("driver", Status::Warning, "no driver").remedy("install it"),
        ];
        let text = text(&findings, false);
        for part in ["ok", "libradrm.so", "warning", "no driver", "-> install it", "not everything"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn each_warning_on_this_machine_has_a_remedy() {
        let findings = checks::all();
        assert!(findings.len() >= 10, "{findings:?}");
        for finding in findings {
            assert!(!finding.found.is_empty(), "{finding:?}");
            assert!(finding.status < Status::Warning || finding.remedy.is_some(), "{finding:?}");
        }
    }
}
