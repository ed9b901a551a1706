//! Answers of the server, and to whom they are given.
//!
//! Any process of the machine can connect, and so can any page that the user's browser shows. Files of the page hold
//! nothing of the runs and are given to all; the runs are given to requests that have the token. A request names a run by
//! its number, never a file.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use radrm_analyzer::{Curves, Summary, explorer, html};
use radrm_collector::dataset::{Dataset, Filter};
use radrm_http::{Answer, Header, Request};
use serde_json::json;

use crate::Failure;
use crate::error::FileProblem;
use crate::show::dataset::in_file;
use crate::show::report;
use crate::sweep::member::{self, Member};

use super::token::Token;
use super::{columns, interference};

/// Runs that are shown: the newest.
const MAX_RUNS: u32 = 100_000;

/// Of the page: scripts and styles that the server itself has, and requests to it.
const OWN: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; \
                   form-action 'none'; frame-ancestors 'none'";
/// Of a run's report, which has its scripts and styles within; its own policy forbids all requests.
const REPORT: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// State that all connections share.
#[derive(Clone)]
pub(super) struct Explorer(Arc<Shared>);

struct Shared {
    dataset: PathBuf,
    sweeps: Vec<PathBuf>,
    token: Token,
    /// Accepted values of the header `Host`.
    hosts: Vec<String>,
    files: [(&'static str, &'static str, String); 4],
    /// Profiles of the runs that were listed, by number.
    profiles: RwLock<BTreeMap<i64, Option<PathBuf>>>,
}

impl Explorer {
    pub(super) fn new(dataset: PathBuf, sweeps: Vec<PathBuf>, address: SocketAddr, token: Token) -> Self {
        let hosts = vec![address.to_string(), format!("localhost:{}", address.port())];
        let profiles = RwLock::default();
        Self(Arc::new(Shared { dataset, sweeps, token, hosts, files: explorer(), profiles }))
    }

    pub(super) fn answer(&self, request: &Request) -> Answer {
        let mut answer = self.0.answer(request).unwrap_or_else(|refused| refused);
        let policy = if request.path() == "/run" { REPORT } else { OWN };
        let headers = [
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("Cache-Control", "no-store"),
        ];
        answer.headers.extend(headers.map(|(name, value)| (name, value.to_owned())));
        answer
    }
}

impl Shared {
    fn answer(&self, request: &Request) -> Result<Answer, Answer> {
        // A name of another site that leads here (DNS rebinding) would make its pages of the same origin.
        match request.header("Host") {
            Header::One(host) if self.hosts.iter().any(|own| own == host) => {}
            _ => {
                return Err(Answer::text(
                    "421 Misdirected Request",
                    "use the address that radrm explore printed",
                ));
            }
        }
        match request.header("Origin") {
            Header::Absent => {}
            Header::One(origin)
                if origin
                    .strip_prefix("http://")
                    .is_some_and(|host| self.hosts.iter().any(|own| own == host)) => {}
            _ => return Err(Answer::text("403 Forbidden", "pages of other sites get nothing here")),
        }
        if request.method != "GET" {
            return Err(Answer::text("405 Method Not Allowed", "everything here is only read: use GET"));
        }
        if let Some((_, kind, text)) = self.files.iter().find(|file| file.0 == request.target) {
            return Ok(Answer::new("200 OK", kind, text.as_str()));
        }
        let asked = request.target.strip_prefix("/api/").ok_or_else(nothing)?;
        let is_known = match request.header("Authorization") {
            Header::One(text) => text.strip_prefix("Bearer ").is_some_and(|token| self.token.is(token)),
            _ => false,
        };
        if !is_known {
            let why = "the token is missing or wrong: open the whole line that radrm explore printed";
            return Err(Answer::text("401 Unauthorized", why));
        }
        let made = match asked.split_once('/') {
            None if asked == "runs" => self.runs(),
            Some(("series", number)) => self.series(self.profile(number)?),
            Some(("page", number)) => self.page(self.profile(number)?),
            _ => return Err(nothing()),
        };
        made.map_err(|failure| Answer::text("500 Internal Server Error", &failure.to_string()))
    }

    /// The profile of a run that was listed.
    fn profile(&self, number: &str) -> Result<PathBuf, Answer> {
        let number = number.parse::<i64>().map_err(|_| nothing())?;
        let profiles = self.profiles.read().unwrap_or_else(PoisonError::into_inner);
        match profiles.get(&number) {
            Some(Some(path)) => Ok(path.clone()),
            Some(None) => Err(Answer::text("404 Not Found", "this run has no profile")),
            None => {
                Err(Answer::text("404 Not Found", "no run of this number was listed: read the runs again"))
            }
        }
    }

    fn runs(&self) -> Result<Answer, Failure> {
        let wrong = |error| in_file(&self.dataset, error);
        let dataset = Dataset::open_existing(&self.dataset).map_err(wrong)?;
        let filter = Filter { limit: Some(MAX_RUNS), ..Filter::default() };
        let rows = dataset.rows(&filter).map_err(wrong)?;
        let sweeps = self.sweeps.iter().map(|file| member::named(file)).collect::<Result<Vec<_>, _>>()?;
        let profiles = rows.iter().filter_map(|row| row.profile_path.as_deref().map(Path::new));
        let members = member::by_profile(&sweeps, profiles);
        let mut matrices: Vec<_> = sweeps.iter().filter_map(interference::of_sweep).collect();
        matrices.extend(interference::observed(&dataset, &rows).map_err(wrong)?);
        let (columns, values) = columns::table(&rows, &members);
        let paths = rows.iter().map(|row| (row.id, row.profile_path.as_ref().map(PathBuf::from)));
        *self.profiles.write().unwrap_or_else(PoisonError::into_inner) = paths.collect();
        as_json(&json!({
            "dataset": self.dataset.display().to_string(),
            "columns": columns,
            "values": values,
            "matrices": matrices,
            "no_matrix": interference::NONE,
            "t95": columns::student(),
            "is_cut": rows.len() >= MAX_RUNS as usize,
        }))
    }

    fn series(&self, path: PathBuf) -> Result<Answer, Failure> {
        let (profile, is_running) = regular(&path).and_then(|()| report::read(&path))?;
        as_json(&Curves::new(&profile, &summary(&profile, &path, is_running)))
    }

    fn page(&self, path: PathBuf) -> Result<Answer, Failure> {
        let (profile, is_running) = regular(&path).and_then(|()| report::read(&path))?;
        Ok(Answer::new(
            "200 OK",
            "text/html; charset=utf-8",
            html(&profile, &summary(&profile, &path, is_running)),
        ))
    }
}

fn summary(profile: &radrm_profile::model::Profile, path: &Path, is_running: bool) -> Summary {
    let summary = if is_running { Summary::of_running(profile) } else { Summary::from_profile(profile) };
    summary.with_own(Member::of_profile(path).map(|member| member.summary()))
}

/// A pipe in the place of a profile would keep its reader for ever.
fn regular(path: &Path) -> Result<(), Failure> {
    let found = fs::metadata(path).map_err(|error| FileProblem::Io(error).of(path))?;
    if found.is_file() { Ok(()) } else { Err(FileProblem::Irregular.of(path)) }
}

fn nothing() -> Answer {
    Answer::text("404 Not Found", "there is nothing here")
}

fn as_json(value: &impl serde::Serialize) -> Result<Answer, Failure> {
    Ok(Answer::new("200 OK", "application/json", serde_json::to_vec(value)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: &str = "127.0.0.1:4711";

    fn explorer() -> (Explorer, String) {
        let token = Token::new().unwrap();
        let text = token.text().to_owned();
        (Explorer::new("/no/dataset.db".into(), Vec::new(), ADDRESS.parse().unwrap(), token), text)
    }

    fn get(target: &str) -> Request {
        Request::new("GET", target).with("Host", ADDRESS)
    }

    #[test]
    fn runs_are_for_requests_with_the_token_only() {
        let (explorer, token) = explorer();
        let status = |request: &Request| explorer.answer(request).status;
        for path in ["/api/runs", "/api/series/1", "/api/page/1", "/api/other"] {
            assert!(status(&get(path)).starts_with("401"), "{path}");
            let wrong = get(path).with("Authorization", &format!("Bearer {}", "0".repeat(48)));
            assert!(status(&wrong).starts_with("401"), "{path}");
            let twice =
                get(path).with("Authorization", &format!("Bearer {token}")).with("Authorization", "Bearer x");
            assert!(status(&twice).starts_with("401"), "{path}");
        }
        let known =
            |path: &str| explorer.answer(&get(path).with("Authorization", &format!("Bearer {token}")));
        let answer = known("/api/runs");
        let body = String::from_utf8(answer.body).unwrap();
        assert!(answer.status.starts_with("500") && body.contains("/no/dataset.db"), "{body}");
        for path in
            ["/api/series/1", "/api/page/../../etc/passwd", "/api/page/%2e%2e", "/api/page/", "/api", "/api/"]
        {
            assert!(known(path).status.starts_with("404"), "{path}");
        }
    }

    #[test]
    fn other_sites_and_methods_get_nothing() {
        let (explorer, token) = explorer();
        let status = |request: Request| {
            explorer.answer(&request.with("Authorization", &format!("Bearer {token}"))).status
        };
        assert_eq!(status(get("/")), "200 OK");
        assert_eq!(status(Request::new("GET", "/").with("Host", "localhost:4711")), "200 OK");
        assert_eq!(status(get("/").with("Origin", "http://127.0.0.1:4711")), "200 OK");
        for host in ["evil.example:4711", "127.0.0.1", "127.0.0.1:80", "127.0.0.1:4711.evil.example", ""] {
            assert!(status(Request::new("GET", "/").with("Host", host)).starts_with("421"), "{host}");
        }
        assert!(status(Request::new("GET", "/")).starts_with("421"));
        assert!(status(get("/").with("host", "evil.example")).starts_with("421"), "two hosts");
        for origin in ["null", "http://evil.example", "https://127.0.0.1:4711", "http://127.0.0.1:80", ""] {
            assert!(status(get("/api/runs").with("Origin", origin)).starts_with("403"), "{origin}");
        }
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "get"] {
            let request = Request::new(method, "/api/runs").with("Host", ADDRESS);
            assert!(status(request).starts_with("405"), "{method}");
        }
        for path in
            ["/../etc/passwd", "//", "/script.js/", "/style.css%00", "http://evil.example/", "*", "/run/1"]
        {
            assert!(status(get(path)).starts_with("404"), "{path}");
        }
    }
}
