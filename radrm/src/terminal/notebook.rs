//! Address of a notebook that an interactive job prints, for a user who has come by ssh: the browser runs on another machine.

/// Longest line in which an address is looked for, bytes.
const MAX_LINE: usize = 4096;

/// Way from the user's own machine to this one.
#[derive(Debug, PartialEq, Eq)]
struct Login {
    /// `alice@192.0.2.7`.
    target: String,
    /// Port of ssh, if it is another than its usual one.
    port: Option<String>,
}

impl Login {
    /// By what sshd says of the connection: both sides' addresses and ports.
    fn read(connection: &str, user: Option<&str>) -> Option<Self> {
        let words: Vec<&str> = connection.split_whitespace().collect();
        let [_, _, server, port] = words[..] else { return None };
        let is_plain =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:%-_".contains(&byte));
        let user = user.filter(|user| is_plain(user)).map(|user| format!("{user}@")).unwrap_or_default();
        let target = format!("{user}{server}");
        let port = Some(port.to_owned()).filter(|port| port != "22");
        (is_plain(server) && port.as_deref().is_none_or(is_plain)).then_some(Self { target, port })
    }

    /// Command and address for the user's own machine.
    fn sentence(&self, port: u16, path: &str) -> String {
        let own = self.port.as_ref().map(|port| format!("-p {port} ")).unwrap_or_default();
        format!(
            "radrm: on your own machine run `ssh -N {own}-L {port}:localhost:{port} {}`, and open http://localhost:{port}{path}",
            self.target
        )
    }
}

/// Watches what a program prints for the address of a notebook on this machine.
#[derive(Debug, Default)]
pub(super) struct Notebook {
    /// `None`: there is nothing to say, or it was said.
    login: Option<Login>,
    /// The beginning of the line that is not complete.
    line: Vec<u8>,
}

impl Notebook {
    /// Of the user of this process. On the machine's own screen an address can be opened as it is.
    pub(super) fn of_login() -> Self {
        let connection = std::env::var("SSH_CONNECTION").unwrap_or_default();
        let user = radrm_limits::scopes::user_name(rustix::process::geteuid().as_raw());
        Self { login: Login::read(&connection, user.as_deref()), line: Vec::new() }
    }

    /// Sentence about the address on a line that these bytes complete, once.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Option<String> {
        let login = self.login.as_ref()?;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MAX_LINE.saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
            if !part.ends_with(b"\n") {
                continue;
            }
            let line = std::mem::take(&mut self.line);
            if let Some((port, path)) = address(&String::from_utf8_lossy(&line)) {
                let sentence = login.sentence(port, path);
                self.login = None;
                return Some(sentence);
            }
        }
        None
    }
}

/// Port and path of a notebook's address in a line. Its token tells it from others; nothing in it acts on a terminal.
fn address(line: &str) -> Option<(u16, &str)> {
    let after = |prefix: &str| line.find(prefix).map(|at| &line[at + prefix.len()..]);
    let rest = after("http://localhost:").or_else(|| after("http://127.0.0.1:"))?;
    let rest = &rest[..rest.find(|c: char| !c.is_ascii_graphic()).unwrap_or(rest.len())];
    let (port, path) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
    let port = port.parse().ok()?;
    (path.starts_with('/') && path.contains("token=")).then_some((port, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notebook(connection: &str) -> Notebook {
        Notebook { login: Login::read(connection, Some("alice")), line: Vec::new() }
    }

    #[test]
    fn the_address_of_a_notebook_comes_with_the_way_to_it_once() {
        let mut of = notebook("198.51.100.4 50122 192.0.2.7 22");
        assert_eq!(of.read(b"[I ServerApp] Serving notebooks\r\n    http://loc"), None);
        assert_eq!(of.read(b"alhost:8889/lab?token=0123abcd\x1b[0m"), None, "the line goes on");
        let sentence = of.read(b"\r\n    http://127.0.0.1:8889/lab?token=0123abcd\r\n").unwrap();
        assert_eq!(
            sentence,
            "radrm: on your own machine run `ssh -N -L 8889:localhost:8889 alice@192.0.2.7`, and open \
             http://localhost:8889/lab?token=0123abcd"
        );
        assert_eq!(of.read(b"http://localhost:8889/lab?token=0123abcd\n"), None);
    }

    #[test]
    fn another_port_of_ssh_is_named_and_without_ssh_nothing_is_said() {
        let line = b"http://localhost:8888/?token=x\n";
        let sentence = notebook("2001:db8::4 50122 2001:db8::7 2222").read(line).unwrap();
        assert!(sentence.contains("`ssh -N -p 2222 -L 8888:localhost:8888 alice@2001:db8::7`"), "{sentence}");
        for none in ["", "a b c", "198.51.100.4 50122 $(reboot) 22"] {
            assert_eq!(notebook(none).read(line), None, "{none}");
        }
    }

    #[test]
    fn other_addresses_and_endless_lines_are_passed_over() {
        for line in [
            "see http://localhost:8888/metrics",
            "http://localhost:99999/?token=x",
            "http://localhost:/?token=x",
            "https://example.org/?token=x",
            "http://localhost:8888",
        ] {
            assert_eq!(address(line), None, "{line}");
        }
        let mut of = notebook("198.51.100.4 50122 192.0.2.7 22");
        for _ in 0..100 {
            assert_eq!(of.read(&[b'x'; 1000]), None);
        }
        assert!(of.line.len() <= MAX_LINE);
        assert_eq!(of.read(b"\n"), None);
        assert!(of.read(b"http://localhost:8888/?token=x\n").is_some());
    }
}
