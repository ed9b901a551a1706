//! The few requests to Kubernetes' API server.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

use crate::claim::ResourceClaim;
use crate::devices::DRIVER;
use crate::messages;

/// Folder in a pod with the token of its service account and the server's certificate authority.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const CONNECT: Duration = Duration::from_secs(5);
/// The kubelet waits 45 s for a claim.
const ANSWER: Duration = Duration::from_secs(15);
/// Claims and slices are a few KiB; the server's own limit on an object is 3 MiB.
const MAX_ANSWER: u64 = 16 << 20;
/// Characters of the server's words that are shown.
const WORDS: usize = 300;

/// Reason that the API server did not carry out a request, as one sentence.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "each variant states its sentence")]
pub enum ApiError {
    #[error(
        "this is not a pod of Kubernetes: KUBERNETES_SERVICE_HOST is not set; name the API server with --api-server"
    )]
    NoServer,
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{}: no certificate is in it", .0.display())]
    NoCertificate(PathBuf),
    #[error("the API server does not answer: {0}")]
    Unreachable(Box<ureq::Error>),
    #[error("the API server refused {what} ({status}): {words}")]
    Refused { what: String, status: u16, words: String },
    #[error("the API server's answer about {0} is not understood: {1}")]
    Strange(String, serde_json::Error),
}

impl ApiError {
    /// Returns true if the server reports that there is no such object.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Refused { status: 404, .. })
    }
}

/// The API server.
#[derive(Debug)]
pub struct Api {
    agent: Agent,
    base: String,
    /// Read for each request: the kubelet replaces it every hour.
    token: Option<PathBuf>,
}

impl Api {
    /// The server at this address, or that of the cluster whose pod this is.
    ///
    /// # Errors
    /// [`ApiError::NoServer`], or the pod's files cannot be read.
    pub fn new(address: Option<&str>) -> Result<Self, ApiError> {
        match address {
            Some(address) => Ok(Self::at(address, &TlsConfig::default(), None)),
            None => {
                let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
                let host = set("KUBERNETES_SERVICE_HOST").ok_or(ApiError::NoServer)?;
                let port = set("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
                // An address of version 6 needs brackets.
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                Self::of_pod(&format!("https://{host}:{port}"), Path::new(ACCOUNT))
            }
        }
    }

    /// The server at this address, for the service account whose files are in a folder.
    ///
    /// # Errors
    /// The certificate authority cannot be read.
    pub fn of_pod(address: &str, account: &Path) -> Result<Self, ApiError> {
        let path = account.join("ca.crt");
        let pem = fs::read(&path).map_err(|source| ApiError::File { path: path.clone(), source })?;
        let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
            .filter_map(|item| match item {
                Ok(PemItem::Certificate(certificate)) => Some(certificate),
                _ => None,
            })
            .collect();
        if certificates.is_empty() {
            return Err(ApiError::NoCertificate(path));
        }
        let tls = TlsConfig::builder().root_certs(RootCerts::new_with_certs(&certificates)).build();
        Ok(Self::at(address, &tls, Some(account.join("token"))))
    }

    fn at(address: &str, tls: &TlsConfig, token: Option<PathBuf>) -> Self {
        let config = Agent::config_builder()
            .timeout_connect(Some(CONNECT))
            .timeout_global(Some(ANSWER))
            .http_status_as_error(false)
            // The token goes to this server only, also where the environment names a proxy.
            .max_redirects(0)
            .proxy(None)
            .tls_config(tls.clone())
            .user_agent(concat!("radrm-kubelet-plugin/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: config.into(), base: address.trim_end_matches('/').to_owned(), token }
    }

    /// A claim. Its namespace and name were checked ([`crate::claim::check`]).
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn claim(&self, claim: &messages::Claim) -> Result<ResourceClaim, ApiError> {
        let messages::Claim { namespace, name, .. } = claim;
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}");
        self.get(&path, &[], &format!("the claim {namespace}/{name}"))
    }

    /// The uid of a node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn node_uid(&self, node: &str) -> Result<String, ApiError> {
        let node: Value = self.get(&format!("/api/v1/nodes/{node}"), &[], "this node")?;
        Ok(node["metadata"]["uid"].as_str().unwrap_or_default().to_owned())
    }

    /// The slices of this driver on a node.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn slices(&self, node: &str) -> Result<Vec<Value>, ApiError> {
        let selector = format!("spec.driver={DRIVER},spec.nodeName={node}");
        let mut list: Value = self.get(SLICES, &[("fieldSelector", &selector)], "this node's slices")?;
        Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
    }

    /// Makes a slice; gives what the server has made of it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn create_slice(&self, slice: &Value) -> Result<Value, ApiError> {
        self.send(self.agent.post(format!("{}{SLICES}", self.base)), slice, "a new slice")
    }

    /// Replaces a slice by one of the same name and resource version.
    ///
    /// # Errors
    /// [`ApiError`]; status 409 if another client has changed it.
    pub fn replace_slice(&self, name: &str, slice: &Value) -> Result<Value, ApiError> {
        self.send(
            self.agent.put(format!("{}{SLICES}/{name}", self.base)),
            slice,
            &format!("the slice {name}"),
        )
    }

    /// Removes a slice.
    ///
    /// # Errors
    /// [`ApiError`].
    pub fn delete_slice(&self, name: &str) -> Result<(), ApiError> {
        let what = format!("to delete the slice {name}");
        let request = self.authorized(self.agent.delete(format!("{}{SLICES}/{name}", self.base)))?;
        answer::<Value>(request.call(), &what).map(drop)
    }

    fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
        what: &str,
    ) -> Result<T, ApiError> {
        let mut request = self.authorized(self.agent.get(format!("{}{path}", self.base)))?;
        for (name, value) in query {
            request = request.query(name, value);
        }
        answer(request.call(), what)
    }

    fn send(
        &self,
        request: ureq::RequestBuilder<ureq::typestate::WithBody>,
        body: &impl Serialize,
        what: &str,
    ) -> Result<Value, ApiError> {
        answer(self.authorized(request)?.send_json(body), what)
    }

    fn authorized<B>(&self, request: ureq::RequestBuilder<B>) -> Result<ureq::RequestBuilder<B>, ApiError> {
        let Some(path) = &self.token else { return Ok(request) };
        let token =
            fs::read_to_string(path).map_err(|source| ApiError::File { path: path.clone(), source })?;
        Ok(request.header("authorization", format!("Bearer {}", token.trim())))
    }
}

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

fn answer<T: DeserializeOwned>(
    response: Result<Response<ureq::Body>, ureq::Error>,
    what: &str,
) -> Result<T, ApiError> {
    let unreachable = |error| ApiError::Unreachable(Box::new(error));
    let mut response = response.map_err(unreachable)?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec().map_err(unreachable)?;
    if !(200..300).contains(&status) {
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        let words = value["message"].as_str().unwrap_or("no reason is given");
        let words = words.chars().filter(|c| !c.is_control()).take(WORDS).collect();
        return Err(ApiError::Refused { what: what.to_owned(), status, words });
    }
    serde_json::from_slice(&body).map_err(|error| ApiError::Strange(what.to_owned(), error))
}
