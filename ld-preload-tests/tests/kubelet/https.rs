//! The API server as a pod reaches it: over TLS with the cluster's own authority, with a token that is replaced.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

use radrm_kubelet::{
    api::{Api, ApiError},
    messages::Claim,
};
use radrm_preload_tests::{child::Running, rig::PATIENCE};

/// Answers a claim with the token that it was asked with.
const SERVER: &str = "
import http.server, json, ssl
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def log_message(self, *arguments): pass
    def do_GET(self):
        body = json.dumps({'metadata': {'uid': self.headers['Authorization']}}).encode()
        self.send_response(200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('server.crt', 'server.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print('ready', server.server_address[1], flush=True)
server.serve_forever()
";

const CERTIFICATES: &str = "
set -e
new() { openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes \"$@\"; }
new -x509 -days 2 -subj /CN=cluster -keyout ca.key -out ca.crt
new -x509 -days 2 -subj /CN=other -keyout other.key -out other.crt
new -subj /CN=server -keyout server.key -out server.csr
echo subjectAltName=IP:127.0.0.1 > names
openssl x509 -req -days 2 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -extfile names -out server.crt
";

#[test]
fn the_clusters_own_authority_and_the_newest_token_are_used() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = Command::new("/bin/sh")
        .args(["-c", CERTIFICATES])
        .current_dir(&folder)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        eprintln!("skipped: openssl is not installed");
        return;
    }
    let mut command = Command::new("python3");
    command.args(["-c", SERVER]).current_dir(&folder);
    let mut server = Running::start(command, 4 * PATIENCE);
    let port = server.until_ready();
    let account = |authority: &str| {
        let account = folder.path().join(format!("account-{authority}"));
        fs::create_dir(&account).expect("a folder");
        fs::copy(folder.path().join(authority), account.join("ca.crt")).expect("a certificate");
        fs::write(account.join("token"), "first\n").expect("a token");
        account
    };
    let address = format!("https://127.0.0.1:{port}");
    let api = |account: &Path| Api::of_pod(&address, account).expect("a client");
    let claim = Claim { namespace: "default".into(), uid: "u".into(), name: "c".into() };
    let cluster = account("ca.crt");
    let known = api(&cluster);
    let token = |api: &Api| match api
        .claim(&claim)
        .expect("an answer")
        .grant(&claim, radrm_kubelet::claim::Node { name: "n", gpus: &[], context: 0 })
    {
        Err(error) => error.to_string(),
        Ok(grant) => panic!("{grant:?}"),
    };
    assert!(token(&known).ends_with("with the uid Bearer first"), "{}", token(&known));
    fs::write(cluster.join("token"), "second").expect("a token");
    assert!(token(&known).ends_with("with the uid Bearer second"), "{}", token(&known));
    // A server of another authority gets no token.
    let unknown = api(&account("other.crt")).claim(&claim).expect_err("another authority");
    assert!(matches!(unknown, ApiError::Unreachable(_)), "{unknown}");
    fs::write(cluster.join("ca.crt"), "no certificate").expect("a file");
    assert!(matches!(Api::of_pod(&address, &cluster), Err(ApiError::NoCertificate(_))));
    server.kill();
}
