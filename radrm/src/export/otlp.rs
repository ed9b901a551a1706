//! `radrm export otlp`.

use clap::Args;
use radrm_export::otlp::Receiver;
use radrm_text::clean;

use super::chosen::Files;
use super::send::{send_all, variable};
use crate::Failure;
use crate::error::UsageError;

/// The variables of OpenTelemetry's exporters: the address of metrics, the base address, and headers.
const METRICS: &str = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT";
const BASE: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// The flags as written.
#[derive(Args, Debug)]
pub(crate) struct Flags {
    #[command(flatten)]
    files: Files,
    /// The receiver [default: $OTEL_EXPORTER_OTLP_ENDPOINT]
    #[arg(long, value_name = "URL")]
    server: Option<String>,
}

/// Sends runs.
pub(super) fn run(flags: &Flags) -> Result<(), Failure> {
    let named = flags.server.clone().map(|address| (address, false));
    let named = named.or_else(|| Some((variable(METRICS)?, true)));
    let named = named.or_else(|| Some((variable(BASE)?, false)));
    let (address, is_whole) = named.ok_or(UsageError::NoServer(BASE))?;
    let headers = match variable(HEADERS) {
        Some(text) => headers(&text).ok_or(UsageError::Headers(HEADERS))?,
        None => Vec::new(),
    };
    let receiver = Receiver::new(&address, is_whole, headers)?;
    send_all(&flags.files.chosen()?, |chosen| {
        let run = chosen.read()?.run;
        let sent = receiver.send(&run)?;
        let name = clean(&run.name);
        Ok(match sent.rejected {
            0 => format!("{name}: {} values\n", sent.points),
            rejected => {
                format!("{name}: {} values, {rejected} not taken: {}\n", sent.points, clean(&sent.words))
            }
        })
    })
}

/// `NAME=VALUE,...`, values with percent signs as in addresses (the specification of OpenTelemetry's exporters).
fn headers(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let header = |pair: &str| {
        let (name, value) = pair.split_once('=')?;
        let (name, value) = (name.trim().to_ascii_lowercase(), unescaped(value.trim())?);
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        let is_value = value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        (is_name && is_value).then_some((name, value))
    };
    pairs.map(header).collect()
}

fn unescaped(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_exporters_of_opentelemetry_read_them() {
        let read = |text| {
            headers(text).map(|list| list.into_iter().map(|(n, v)| format!("{n}: {v}")).collect::<Vec<_>>())
        };
        assert_eq!(
            read("Authorization=Bearer%20abc, x-scope=a=b,"),
            Some(vec!["authorization: Bearer abc".into(), "x-scope: a=b".into()])
        );
        for wrong in ["nothing", "=x", "a b=c", "a=%0a", "a=%x", "a=%f"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
