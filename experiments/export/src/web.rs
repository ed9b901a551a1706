//! Requests to a server that speaks JSON.

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use radrm_text::clean;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};

/// Timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(10);
/// Timeouts of an answer, and of sending a file to the server.
const ANSWER: Duration = Duration::from_secs(60);
const FILE: Duration = Duration::from_secs(600);
/// Most that is shown of a server's own words.
const WORDS: usize = 200;

/// Credentials of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Credentials {
    /// None are sent.
    #[default]
    None,
    /// With a token.
    Token(String),
    /// With a name and a password.
    Password(String, String),
}

/// Reason that there was no answer, without the number of the system's error.
fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Io(error) => radrm_base::reason(error),
        other => radrm_base::reason(other),
    }
}

/// Reason that a server did not carry out a request, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum WebError {
    #[error("`{}` is no address of a server: http://HOST:PORT or https://HOST:PORT", clean(.0))]
    Address(String),
    #[error("{server} cannot be reached: {}", reason(source))]
    Unreachable { server: String, source: Box<ureq::Error> },
    #[error("{server} answers {status}{}", said(words))]
    Refused { server: String, status: u16, code: Option<String>, words: String },
    #[error("{server} does not answer as {kind} does")]
    Strange { server: String, kind: &'static str },
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
}

fn said(words: &str) -> String {
    if words.is_empty() { String::new() } else { format!(": {words}") }
}

/// An address without what may be secret in it: name and password before an `@`, and the query.
fn without_secrets(address: &str) -> String {
    let address = address.split_once('?').map_or(address, |(before, _)| before);
    let Some((before, host)) = address.rsplit_once('@') else { return address.to_owned() };
    let scheme = before.find("://").map_or("", |at| &before[..at + 3]);
    format!("{scheme}...@{host}")
}

/// A server.
pub(crate) struct Web {
    /// Kind of server.
    kind: &'static str,
    agent: Agent,
    base: String,
    /// The same in messages.
    shown: String,
    /// Headers that each request has besides its own: the user's credentials, and those that a receiver requires.
    headers: Vec<(String, String)>,
}

impl Web {
    /// For the server at `address`, below which paths are. Nothing is sent yet.
    pub(crate) fn new(
        kind: &'static str,
        address: &str,
        credentials: &Credentials,
    ) -> Result<Self, WebError> {
        let web = Self::at(kind, address.trim_end_matches('/'), credentials)?;
        if web.base.contains('?') { Err(WebError::Address(web.shown)) } else { Ok(web) }
    }

    /// For one place at a server: the path of each request is empty.
    pub(crate) fn at(kind: &'static str, address: &str, credentials: &Credentials) -> Result<Self, WebError> {
        let wrong = || WebError::Address(without_secrets(address));
        let uri: ureq::http::Uri = address.parse().map_err(|_| wrong())?;
        let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
        // A name and a password in the address would be shown with each run's.
        let is_plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@'));
        if !is_web || !is_plain {
            return Err(wrong());
        }
        let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(ANSWER))
            .http_status_as_error(false)
            // The server that was named gets the data and its headers, and no other.
            .max_redirects(0)
            .tls_config(tls)
            .user_agent(concat!("radrm/", env!("CARGO_PKG_VERSION")))
            .build();
        let authorization = match credentials {
            Credentials::None => None,
            Credentials::Token(token) => Some(format!("Bearer {token}")),
            Credentials::Password(name, password) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
            }
        };
        let headers = authorization.map(|value| ("authorization".to_owned(), value)).into_iter().collect();
        let (base, shown) = (address.to_owned(), without_secrets(address));
        Ok(Self { kind, agent: config.into(), base, shown, headers })
    }

    /// With these headers in each request.
    pub(crate) fn with_headers(mut self, headers: Vec<(String, String)>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// The error of an answer that is none of its kind.
    pub(crate) fn strange(&self) -> WebError {
        WebError::Strange { server: self.shown.clone(), kind: self.kind }
    }

    /// The address without a slash at its end.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Returns true if the server is on this machine, by its address.
    pub(crate) fn is_local(&self) -> bool {
        let address: Option<ureq::http::Uri> = self.base.parse().ok();
        let host = address.as_ref().and_then(|address| address.host()).unwrap_or_default();
        let host = host.trim_matches(['[', ']']);
        host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }

    /// Asks for `path` with parameters of the query.
    pub(crate) fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value, WebError> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in query {
            request = request.query(name, value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        self.answer(request.call())
    }

    /// Sends JSON to `path`.
    pub(crate) fn post(&self, path: &str, body: &impl Serialize) -> Result<Value, WebError> {
        let mut request = self.agent.post(format!("{}{path}", self.base)).content_type("application/json");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        self.answer(request.send_json(body))
    }

    /// Puts a file at `path`.
    pub(crate) fn put_file(&self, path: &str, file: &Path) -> Result<(), WebError> {
        let open = File::open(file);
        let open = open.map_err(|source| WebError::File { path: file.display().to_string(), source })?;
        self.put(path, &mut &open)
    }

    /// Puts bytes at `path`.
    pub(crate) fn put_bytes(&self, path: &str, bytes: &[u8]) -> Result<(), WebError> {
        self.put(path, &mut &bytes[..])
    }

    fn put(&self, path: &str, from: &mut dyn std::io::Read) -> Result<(), WebError> {
        let request = self.agent.put(format!("{}{path}", self.base));
        let mut request = request.config().timeout_global(Some(FILE)).build();
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        self.answer(request.send(ureq::SendBody::from_reader(&mut { from }))).map(|_| ())
    }

    fn answer(&self, response: Result<Response<ureq::Body>, ureq::Error>) -> Result<Value, WebError> {
        let server = || self.shown.clone();
        let unreachable = |source| WebError::Unreachable { server: server(), source: Box::new(source) };
        let mut response = response.map_err(unreachable)?;
        let status = response.status().as_u16();
        let text = response.body_mut().read_to_string().map_err(unreachable)?;
        let value: Option<Value> = serde_json::from_str(&text).ok();
        if !(200..300).contains(&status) {
            let field = |name: &str| Some(value.as_ref()?.get(name)?.as_str()?.to_owned());
            // A sentence, or a page for browsers.
            let plain = || (value.is_none() && !text.trim_start().starts_with('<')).then(|| text.clone());
            let words = field("message").or_else(plain).unwrap_or_default();
            let words = clean(words.lines().next().unwrap_or_default()).chars().take(WORDS).collect();
            return Err(WebError::Refused { server: server(), status, code: field("error_code"), words });
        }
        // A file that was put may be answered with nothing.
        match value {
            Some(value) => Ok(value),
            None if text.trim().is_empty() => Ok(Value::Null),
            None => Err(self.strange()),
        }
    }
}
